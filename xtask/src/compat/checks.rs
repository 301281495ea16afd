//! What is checked on each kernel, by programs that are built here: tests of the workspace, and the script for fs-verity.
//!
//! A virtual machine without KVM is slow, so these are a few of the tests: those whose subject depends on the kernel.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::guest::{Job, Ran, quoted};
use super::outcome::Outcome;
use crate::workspace::{Workspace, cargo};

/// A check: one row of the table.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    what: What,
    seconds: u64,
}

#[derive(Debug)]
enum What {
    /// Tests of one test program, by their full names.
    Tests { program: &'static str, names: &'static [&'static str] },
    /// `xtask/native-verity`.
    NativeVerity,
}

/// The checks, in the order of the table.
pub(crate) static CHECKS: [Check; 18] = [
    Check {
        name: "mount, `shunt why`, umount",
        what: What::Tests {
            program: "kernel",
            names: &["privileged_device_serves", "privileged_cloned_devices_serve"],
        },
        seconds: 120,
    },
    Check {
        name: "umount of busy, stopped and dead mounts",
        what: What::Tests {
            program: "mounting",
            names: &[
                "privileged_a_busy_mount_is_said_to_be_busy_and_by_whom",
                "privileged_a_killed_server_leaves_errors_and_umount_works",
                "privileged_a_stopped_server_can_be_taken_away_by_force",
                "privileged_an_aborted_connection_ends_the_server_and_leaves_no_mount",
            ],
        },
        seconds: 180,
    },
    Check {
        name: "passthrough",
        what: What::Tests { program: "kernel", names: &["privileged_passthrough_where_the_kernel_has_it"] },
        seconds: 120,
    },
    Check {
        name: "without passthrough: splice",
        what: What::Tests {
            program: "kernel",
            names: &["privileged_without_passthrough_the_server_moves_the_bytes"],
        },
        seconds: 120,
    },
    Check {
        name: "io_uring: mount, `shunt why`, umount",
        what: What::Tests { program: "kernel", names: &["privileged_rings_serve_where_the_kernel_has_them"] },
        seconds: 120,
    },
    Check {
        name: "takeover",
        what: What::Tests {
            program: "kernel",
            names: &["privileged_a_killed_server_is_replaced_where_the_kernel_resends_requests"],
        },
        seconds: 120,
    },
    Check {
        name: "conformance",
        what: What::Tests {
            program: "conformance",
            names: &["ext4_device_passthrough", "ext4_cloned_served"],
        },
        seconds: 1800,
    },
    Check {
        name: "conformance, io_uring",
        what: What::Tests {
            program: "conformance",
            names: &["ext4_uring_passthrough", "ext4_uring_delegated"],
        },
        seconds: 1800,
    },
    Check {
        name: "pjdfstest",
        what: What::Tests { program: "pjdfstest", names: &["device"] },
        seconds: 1800,
    },
    Check {
        name: "pjdfstest, io_uring",
        what: What::Tests { program: "pjdfstest", names: &["uring", "uring_delegated"] },
        seconds: 1800,
    },
    Check { name: "fsx", what: What::Tests { program: "fsx", names: &["device", "cloned"] }, seconds: 480 },
    Check { name: "fsx, io_uring", what: What::Tests { program: "fsx", names: &["uring"] }, seconds: 480 },
    Check { name: "seals with native fs-verity", what: What::NativeVerity, seconds: 480 },
    Check {
        name: "export of a raw image",
        what: What::Tests {
            program: "exporting",
            names: &[
                "raw::privileged_an_image_is_shown_over_itself_and_is_there_again_afterwards",
                "raw::privileged_a_block_device_is_a_raw_image",
                "raw::privileged_a_file_system_lives_in_a_raw_image",
            ],
        },
        seconds: 180,
    },
    Check {
        name: "export of a qcow2 image",
        what: What::Tests {
            program: "exporting",
            names: &[
                "qcow2::privileged_a_file_system_lives_in_a_qcow2_image",
                "qcow2::privileged_a_backing_chain_is_read_through_and_only_the_image_is_written",
            ],
        },
        seconds: 180,
    },
    Check {
        name: "zero copy",
        what: What::Tests {
            program: "privileged_zero_copy",
            names: &["bytes_move_without_a_copy_as_they_do_with_one"],
        },
        seconds: 300,
    },
    Check {
        name: "cost of zero copy",
        what: What::Tests { program: "costs", names: &["zero_copy::a_read_of_a_mebibyte_costs_one_enter"] },
        seconds: 180,
    },
    Check {
        name: "transfers that are cut short",
        what: What::Tests {
            program: "exporting",
            names: &[
                "cut::privileged_a_server_that_is_killed_in_the_middle_of_transfers_leaves_no_bytes_astray",
                "cut::privileged_a_connection_that_is_aborted_in_the_middle_of_transfers_leaves_no_bytes_astray",
            ],
        },
        seconds: 600,
    },
];

/// The test programs, each with the crate that it belongs to.
const PROGRAMS: [(&str, &str); 8] = [
    ("kernel", "shunt"),
    ("mounting", "shunt"),
    ("exporting", "shunt"),
    ("conformance", "shuntfs-tests"),
    ("pjdfstest", "shuntfs-tests"),
    ("fsx", "shuntfs-tests"),
    ("costs", "shuntfs-tests"),
    ("privileged_zero_copy", "shuntfs"),
];

/// Test programs that need a program from the registry, each with the test that installs it.
const INSTALLED: [(&str, &str); 2] =
    [("pjdfstest", "the_suite_is_installed"), ("fsx", "the_program_is_installed")];

impl Check {
    /// How long it may take.
    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// Makes what a virtual machine runs.
    ///
    /// # Errors
    /// Where its program was not built.
    pub(crate) fn job(&self, built: &Built, workspace: &Workspace) -> Result<Job> {
        let shunt = quoted(&built.shunt.display().to_string());
        let (folder, command) = match self.what {
            What::Tests { program, names } => {
                let (path, folder) =
                    built.tests.get(program).with_context(|| format!("{program} was not built"))?;
                let path = quoted(&path.display().to_string());
                let options = "--nocapture --test-threads=1";
                let command =
                    format!("exec env SHUNT_BIN={shunt} {path} --exact {} {options}", names.join(" "));
                (folder.clone(), command)
            }
            What::NativeVerity => {
                let script = workspace.root.join("xtask/native-verity").display().to_string();
                (PathBuf::from("/"), format!("exec {} {shunt}", quoted(&script)))
            }
        };
        Ok(Job { folder, command, limit: self.limit() })
    }

    /// Judges what came of it.
    pub(crate) fn judge(&self, ran: &Ran) -> Outcome {
        match self.what {
            What::Tests { names, .. } => Outcome::of_tests(ran, names.len(), self.limit()),
            What::NativeVerity => Outcome::of_script(ran, self.limit()),
        }
    }
}

/// The programs that run in a virtual machine.
#[derive(Debug)]
pub(crate) struct Built {
    shunt: PathBuf,
    /// Test programs by name, with the folder that cargo would run them in.
    tests: BTreeMap<String, (PathBuf, PathBuf)>,
}

impl Built {
    /// Builds all, and has what tests install installed, because a virtual machine has no network. The programs are copied into
    /// `room`: a machine reads their pages when it needs them, and meanwhile another build may replace the files.
    ///
    /// # Errors
    /// Where something cannot be built or copied.
    pub(crate) fn make(workspace: &Workspace, room: &Path) -> Result<Self> {
        let mut command = cargo();
        // Of the whole workspace, so that the features of crates, and with them what was compiled, are those of other builds.
        command.args([
            "test",
            "--workspace",
            "--no-run",
            "--quiet",
            "--message-format",
            "json-render-diagnostics",
        ]);
        command.args(PROGRAMS.iter().flat_map(|(program, _)| ["--test", program]));
        let output = command.current_dir(&workspace.root).stderr(Stdio::inherit()).output();
        let output = output.context("cannot start cargo")?;
        ensure!(output.status.success(), "the tests cannot be built");
        let built = Self::parse(&String::from_utf8_lossy(&output.stdout), workspace)?.copied(room)?;
        for (program, test) in INSTALLED {
            let mut command = Command::new(&built.tests.get(program).context("a test was not built")?.0);
            let output = command.args(["--exact", test, "--nocapture"]).output()?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            ensure!(output.status.success() && !said.contains("SKIPPED:"), "{program}: {}", said.trim());
        }
        Ok(built)
    }

    /// Reads the messages of cargo.
    fn parse(messages: &str, workspace: &Workspace) -> Result<Self> {
        let mut tests = BTreeMap::new();
        for line in messages.lines().filter(|line| line.starts_with('{')) {
            let message: Value = serde_json::from_str(line).context("a message of cargo")?;
            let [name, path, manifest] =
                [&message["target"]["name"], &message["executable"], &message["manifest_path"]]
                    .map(Value::as_str);
            let (Some(name), Some(path), Some(manifest)) = (name, path, manifest) else { continue };
            // Other crates have tests of the same name.
            let package =
                workspace.packages.iter().find(|one| one.folder.join("Cargo.toml") == Path::new(manifest));
            if let Some(package) = package
                && PROGRAMS.contains(&(name, package.name.as_str()))
            {
                tests.insert(name.to_owned(), (PathBuf::from(path), package.folder.clone()));
            }
        }
        let shunt = tests.values().find_map(|(path, _)| Some(beside(path)?.join("shunt")));
        Ok(Self { shunt: shunt.context("no test program was built")?, tests })
    }

    /// Copies the programs, as they lie in the folder of a profile: tests look there for `deps`.
    fn copied(mut self, room: &Path) -> Result<Self> {
        let deps = room.join("deps");
        fs::create_dir_all(&deps).with_context(|| deps.display().to_string())?;
        let tests = self.tests.values_mut().map(|(path, _)| (path, deps.as_path()));
        for (program, folder) in tests.chain([(&mut self.shunt, room)]) {
            let copy = folder.join(program.file_name().context("a program without a name")?);
            fs::copy(&*program, &copy).with_context(|| program.display().to_string())?;
            *program = copy;
        }
        Ok(self)
    }
}

/// The folder of the profile that a test program is in: two above.
fn beside(program: &Path) -> Option<&Path> {
    program.parent()?.parent()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;
    use std::collections::BTreeSet;

    fn workspace() -> Workspace {
        let package = |name: &str| Package {
            name: name.to_owned(),
            folder: PathBuf::from("/w/crates").join(name),
            roots: Vec::new(),
            imports: Vec::new(),
            is_published: true,
        };
        Workspace {
            root: "/w".into(),
            target: "/w/target".into(),
            version: "1.0.0".to_owned(),
            packages: vec![package("shunt"), package("shuntfs-tests")],
        }
    }

    const MESSAGES: &str = r#"
{"reason":"compiler-artifact","manifest_path":"/w/crates/shunt/Cargo.toml","target":{"name":"shunt","kind":["bin"]},"executable":"/w/target/debug/shunt"}
{"reason":"compiler-artifact","target":{"name":"serde","kind":["lib"]},"executable":null}
{"reason":"compiler-artifact","manifest_path":"/w/crates/shunt/Cargo.toml","target":{"name":"kernel","kind":["test"]},"executable":"/w/target/debug/deps/kernel-1f"}
{"reason":"compiler-artifact","manifest_path":"/w/crates/shuntfs-tests/Cargo.toml","target":{"name":"kernel","kind":["test"]},"executable":"/w/target/debug/deps/kernel-2e"}
{"reason":"build-finished","success":true}
"#;

    #[test]
    fn programs_are_found_in_the_messages_of_cargo() {
        let built = Built::parse(MESSAGES, &workspace()).unwrap();
        assert_eq!(built.shunt, Path::new("/w/target/debug/shunt"));
        let job = CHECKS[0].job(&built, &workspace()).unwrap();
        assert_eq!(job.folder, Path::new("/w/crates/shunt"));
        assert!(job.command.starts_with(
            "exec env SHUNT_BIN='/w/target/debug/shunt' '/w/target/debug/deps/kernel-1f' --exact "
        ));
        assert_eq!(job.limit, Duration::from_secs(120));
        assert!(CHECKS.iter().any(|check| check.job(&built, &workspace()).is_err()), "not all were built");
        assert!(Built::parse("", &workspace()).is_err());
    }

    #[test]
    fn a_build_does_not_replace_what_a_machine_runs() {
        let (target, room) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let place = |name: &str| {
            fs::write(target.path().join(name), "before").unwrap();
            target.path().join(name)
        };
        let tests = BTreeMap::from([("kernel".to_owned(), (place("kernel-1f"), PathBuf::from("/w")))]);
        let built = Built { shunt: place("shunt"), tests }.copied(room.path()).unwrap();
        fs::write(target.path().join("kernel-1f"), "after").unwrap();
        fs::write(target.path().join("shunt"), "after").unwrap();
        assert_eq!(fs::read(&built.shunt).unwrap(), b"before");
        let (program, folder) = &built.tests["kernel"];
        assert_eq!(
            (fs::read(program).unwrap().as_slice(), folder.as_path()),
            (&b"before"[..], Path::new("/w"))
        );
        assert_eq!(beside(program), Some(room.path()));
        let gone = Built { shunt: target.path().join("missing"), tests: BTreeMap::new() };
        assert!(gone.copied(room.path()).is_err());
    }

    /// A test that is renamed is renamed here, too; a run would tell only after minutes.
    #[test]
    fn every_test_is_there() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        for check in &CHECKS {
            let What::Tests { program, names } = check.what else { continue };
            let (_, package) = PROGRAMS.iter().find(|(name, _)| *name == program).expect("is built");
            let tests = crates.join(package).join("tests");
            let one = tests.join(format!("{program}.rs"));
            for name in names {
                let (module, test) = name.split_once("::").unwrap_or(("main", name));
                let file = if one.is_file() {
                    one.clone()
                } else {
                    tests.join(program).join(format!("{module}.rs"))
                };
                let text =
                    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
                let is_there =
                    text.contains(&format!("fn {test}(")) || text.contains(&format!("    {test}: "));
                assert!(is_there, "{}: no test {test}", file.display());
            }
        }
    }

    #[test]
    fn names_and_limits_can_be_told_apart() {
        let names: BTreeSet<&str> = CHECKS.iter().map(|check| check.name).collect();
        assert_eq!(names.len(), CHECKS.len());
        assert!(CHECKS.iter().all(|check| (60..=1800).contains(&check.seconds)));
    }
}

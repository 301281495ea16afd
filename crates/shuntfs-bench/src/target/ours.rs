//! shunt's own targets.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::{Mounting, Target};
use crate::machine;
use crate::process;
use crate::report::Kind;

/// Makes targets of one `shunt`.
#[derive(Debug, Clone)]
pub(crate) struct Ours {
    shunt: String,
    uring_off: Option<String>,
    zero_copy_off: Option<String>,
}

/// The switch of FUSE over io_uring.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

impl Ours {
    /// Looks at what this machine offers.
    pub(crate) fn new(shunt: &Path) -> Self {
        let uring_off = uring_off();
        let is_root = rustix::process::geteuid().is_root();
        let zero_copy_off =
            uring_off.clone().or_else(|| zero_copy_off(&machine::release(), is_root).map(str::to_owned));
        Self { shunt: shunt.to_string_lossy().into_owned(), uring_off, zero_copy_off }
    }

    /// Makes a target of `shunt mount` with options.
    pub(crate) fn mount(&self, name: &str, options: &str) -> Target {
        self.mount_of(name, "{SRC}", options)
    }

    /// Makes a target of `shunt mount` of several folders, or of one that is a pool, with options.
    pub(crate) fn mount_of(&self, name: &str, branches: &str, options: &str) -> Target {
        let words = [&self.shunt, "mount", "-f", branches, "{MNT}"].into_iter();
        self.target(name, words, options, Mounting::Server)
    }

    /// Makes a target of `shunt mount` whose bytes move by zero copy.
    ///
    /// # Errors
    /// Why there is no zero copy here.
    pub(crate) fn zero_copy(&self, name: &str) -> Result<Target, &str> {
        match &self.zero_copy_off {
            Some(why) => Err(why),
            None => {
                let target = self.mount(name, "--transport uring --flow relay");
                Ok(Target { flow: Some("zero_copy"), ..target })
            }
        }
    }

    /// Makes a target of `shunt mount` by a transport, which serves, or passes through where that is what a case is about.
    pub(crate) fn mount_by(&self, transport: &str) -> Target {
        self.mount_so(transport, &format!("--transport {transport}"))
    }

    /// Makes the same target without the light class of the scheduler.
    pub(crate) fn mount_never_light(&self, transport: &str) -> Target {
        self.mount_so(
            &format!("{transport}-never-light"),
            &format!("--transport {transport} --sched-idle off"),
        )
    }

    fn mount_so(&self, name: &str, options: &str) -> Target {
        let mount = |flow| self.mount(name, &format!("{options} --flow {flow}"));
        Target { passing: Some(mount("passthrough").mounting), ..mount("served") }
    }

    /// Makes a target of `shunt export` of the large file.
    pub(crate) fn export(&self, name: &str, options: &str) -> Target {
        let words = [&self.shunt, "export", "-f", "-w", "{SRC}/large.0", "{MNT}"].into_iter();
        self.target(name, words, options, Mounting::FileServer)
    }

    /// Makes a target of `shunt export` of a disk without contents.
    pub(crate) fn null(&self, name: &str, options: &str) -> Target {
        let words = [&self.shunt, "export", "-f", "-w", "--format=null", "{MNT}"].into_iter();
        Target { kind: Kind::Floor, ..self.target(name, words, options, Mounting::OwnFileServer) }
    }

    /// Makes a target of `shunt export` of a qcow2 image, a copy of the large file.
    ///
    /// The copy is not left in the page cache as it was made: in folios as large as what `qemu-img` writes at once, of which ext4
    /// walks every block's buffer at each small write (`ext4_block_write_begin`, Linux 6.18: that halved random writes). The
    /// large file is not cached like that either, because direct writes of the bare case threw it out.
    pub(crate) fn qcow2(&self, name: &str, options: &str) -> Target {
        const MAKE_AND_SERVE: &str = "qemu-img convert -f raw -O qcow2 \"$1/large.0\" \"$2/large.qcow2\" && \
            dd of=\"$2/large.qcow2\" count=0 conv=notrunc,fdatasync oflag=nocache status=none && \
            program=$3 && mount_point=$4 && image=$2/large.qcow2 && shift 4 && \
            exec \"$program\" export -f -w \"$image\" \"$mount_point\" \"$@\"";
        let words = ["sh", "-c", MAKE_AND_SERVE, "sh", "{SRC}", "{WORK}", &self.shunt, "{MNT}"].into_iter();
        let mut target = self.target(name, words, options, Mounting::OwnFileServer);
        if !process::on_path("qemu-img") {
            target.missing = Some("there is no qemu-img to make the image (Debian: qemu-utils)".to_owned());
        }
        target
    }

    /// Returns the program.
    pub(crate) fn program(&self) -> &str {
        &self.shunt
    }

    /// Makes what shows a folder with each READ delayed: this program, which `setpriv` may start, so by its path.
    ///
    /// # Errors
    /// When the path of this program is unknown.
    pub(crate) fn slow(delay_ms: u32) -> Result<Target> {
        let own = std::env::current_exe().context("cannot find this program")?;
        let (own, delay) = (own.to_string_lossy().into_owned(), delay_ms.to_string());
        let words = [&own, "slow", "--delay-ms", &delay, "{SRC}", "{MNT}"].map(str::to_owned);
        Ok(Target::new("slow", Kind::Floor, Mounting::Server(words.to_vec())))
    }

    /// Returns why io_uring is not available, and how to have it.
    pub(crate) fn uring_off(&self) -> Option<&str> {
        self.uring_off.as_deref()
    }

    fn target<'a>(
        &self,
        name: &str,
        words: impl Iterator<Item = &'a str>,
        options: &'a str,
        mounting: fn(Vec<String>) -> Mounting,
    ) -> Target {
        let words: Vec<String> = words.chain(options.split_whitespace()).map(str::to_owned).collect();
        let missing = wants_uring(&words).then(|| self.uring_off.clone()).flatten();
        Target { missing, ..Target::new(name, Kind::Ours, mounting(words)) }
    }
}

/// Returns whether a command asks for FUSE over io_uring.
pub(super) fn wants_uring(words: &[String]) -> bool {
    words.iter().any(|word| word.contains("uring"))
}

/// Says why FUSE over io_uring is not available, if so. The bench does not turn it on: that is for who owns the machine.
pub(super) fn uring_off() -> Option<String> {
    match fs::read_to_string(SWITCH) {
        Ok(text) if text.trim() == "Y" => None,
        Ok(_) => Some(format!("FUSE over io_uring is off; as root: echo Y > {SWITCH}")),
        Err(_) => {
            Some("this kernel has no FUSE over io_uring (Linux 6.14 with CONFIG_FUSE_IO_URING)".to_owned())
        }
    }
}

/// Says why the kernel moves no bytes by zero copy, as far as that is known before a mount. The bytes of each target are looked at before
/// the first round, and then it has to have moved them.
fn zero_copy_off(release: &str, is_root: bool) -> Option<&'static str> {
    if machine::two_numbers(release).is_none_or(|version| version < (7, 3)) {
        return Some("this kernel has none (Linux 7.3 has)");
    }
    (!is_root).then_some("it needs CAP_SYS_ADMIN")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_copy_is_left_out_with_the_reason() {
        assert_eq!(zero_copy_off("7.3.4+deb13-um", true), None);
        assert_eq!(zero_copy_off("10.0.0", true), None);
        assert!(zero_copy_off("7.2.9", true).is_some_and(|why| why.contains("7.3")));
        assert!(zero_copy_off("", true).is_some_and(|why| why.contains("7.3")));
        assert!(zero_copy_off("7.3.4", false).is_some_and(|why| why.contains("CAP_SYS_ADMIN")));
        let mut ours =
            Ours { shunt: "/bin/shunt".to_owned(), uring_off: None, zero_copy_off: Some("off".to_owned()) };
        assert_eq!(ours.zero_copy("zero copy").unwrap_err(), "off");
        ours.zero_copy_off = None;
        let target = ours.zero_copy("zero copy").unwrap();
        assert_eq!(
            (target.name.as_str(), target.flow, target.missing),
            ("zero copy", Some("zero_copy"), None)
        );
    }

    #[test]
    fn what_is_off_is_missing_where_it_is_asked_for() {
        let off = Some("off".to_owned());
        let ours = Ours { shunt: "/bin/shunt".to_owned(), uring_off: off.clone(), zero_copy_off: off };
        assert_eq!(ours.mount("uring", "--transport uring").missing.as_deref(), Some("off"));
        let device = ours.mount("device", "--transport device");
        assert_eq!((device.missing.as_deref(), device.kind), (None, Kind::Ours));
        assert_eq!(device.about(), "shunt mount -f {SRC} {MNT} --transport device");
        assert!(matches!(ours.null("null", "").mounting, Mounting::OwnFileServer(_)));
        let heavy = ours.mount_never_light("device");
        assert_eq!(heavy.name, "device-never-light");
        let served = "shunt mount -f {SRC} {MNT} --transport device --sched-idle off --flow ";
        assert_eq!(heavy.about(), format!("{served}served"));
        assert_eq!(heavy.passing().about(), format!("{served}passthrough"));
        assert!(matches!(ours.export("file", "").mounting, Mounting::FileServer(_)));
    }
}

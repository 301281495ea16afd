//! Every developer's chore in one program: `cargo xtask layers | tidy | docs | test | deny | package | dist | site | fuser | compat | bench`.

#![forbid(unsafe_code)]

mod bench;
mod compat;
mod deny;
mod dist;
mod docs;
mod fuser;
mod layers;
mod package;
mod site;
mod test;
mod tidy;
mod tools;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;

use crate::workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask CHORE

  layers                    checks which crate imports which
  tidy                      checks the house rules that a program can check
  docs                      writes the pages that are made from the definitions of the command line
  test [--quick] [FILTER]   sets up what the tests need, then runs every check and every test;
                            --quick without set-up and end-to-end tests, FILTER runs the tests with it in their name alone
  deny                      checks licences and origins of dependencies, and advisories about them; lists them as CycloneDX
  dist                      makes the packages: .deb, .rpm, a tarball with a static program, debug information
  dist test                 installs, upgrades and removes them in a fresh Debian; needs root and debootstrap
  package                   packs every crate that can be published, and builds each from its package
  site                      makes the web site from docs/, in target/site/book, and checks its links
  fuser [FILTER]            runs what others wrote for the crate fuser on shuntfs-fuser, and measures both
  compat [KERNEL...]        runs the checks of docs/kernels.md on other kernels in QEMU (6.1, 6.12, newest);
                            --only CHECK runs those with it in their name, --update looks for newer packages of the kernels
  bench [ARGUMENTS]         builds shunt-bench and measures shunt beside its peers; see `cargo xtask bench --help`
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    run(&arguments).unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::from(2)
    })
}

fn run(arguments: &[String]) -> Result<ExitCode> {
    let Some((chore, rest)) = arguments.split_first() else {
        eprint!("{USAGE}");
        return Ok(ExitCode::from(2));
    };
    match (chore.as_str(), rest) {
        ("layers", []) => report("layers", &layers::check(&Workspace::read()?)?),
        ("tidy", []) => report("tidy", &tidy::check(&Workspace::read()?)?),
        ("docs", []) => docs::run(&Workspace::read()?),
        ("test", _) => test::run(&Workspace::read()?, rest),
        ("deny", []) => deny::run(&Workspace::read()?),
        ("dist", _) => dist::run(&Workspace::read()?, rest),
        ("package", []) => package::run(&Workspace::read()?),
        ("site", []) => report("site", &site::build(&Workspace::read()?)?),
        ("fuser", _) => fuser::run(&Workspace::read()?, rest),
        ("compat", _) => compat::run(&Workspace::read()?, rest),
        ("bench", _) => bench::run(&Workspace::read()?, rest),
        ("help" | "--help" | "-h", _) => {
            print!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            eprintln!("xtask: no such chore: {}\n", arguments.join(" "));
            eprint!("{USAGE}");
            Ok(ExitCode::from(2))
        }
    }
}

fn report(chore: &str, faults: &[String]) -> Result<ExitCode> {
    for fault in faults {
        println!("{chore}: {fault}");
    }
    if faults.is_empty() {
        println!("{chore}: ok");
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}

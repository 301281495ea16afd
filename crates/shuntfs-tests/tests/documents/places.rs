//! The same commands where less is allowed: each works, or says what to do.

use anyhow::{Context as _, Result, ensure};

use crate::ground::{Ground, Place};
use crate::{can_run, page};

/// What a command says where it does not work, and what `shunt doctor` says there.
struct Refused {
    place: Place,
    command: &'static str,
    says: &'static [&'static str],
}

const REFUSED: &[Refused] = &[
    Refused {
        place: Place::Confined,
        command: "shunt mount ~/photos ~/view",
        says: &["no permission to mount: CAP_SYS_ADMIN is out of reach", "--cap-add SYS_ADMIN"],
    },
    Refused {
        place: Place::Confined,
        command: "shunt doctor",
        says: &["bad   mounting", "CAP_SYS_ADMIN is out of reach", "--cap-add SYS_ADMIN"],
    },
    Refused {
        place: Place::Confined,
        command: "truncate -s 1M a.raw; shunt export --format raw a.raw b.raw",
        says: &["no permission to mount: CAP_SYS_ADMIN is out of reach"],
    },
    Refused {
        place: Place::NoNewPrivileges,
        command: "shunt mount ~/photos ~/view",
        says: &["no permission to mount: programs gain no privileges", "no-new-privileges"],
    },
    Refused {
        place: Place::NoNewPrivileges,
        command: "shunt doctor",
        says: &["bad   mounting", "no_new_privs"],
    },
    Refused {
        place: Place::User,
        command: "shunt mount --allow-other ~/photos ~/view",
        says: &["allow_other is not allowed to ordinary users", "echo user_allow_other >> /etc/fuse.conf"],
    },
];

/// What `shunt doctor` says where mounting works.
const ALLOWED: &[(Place, &[&str])] = &[
    (Place::Machine, &["ok    mounting       by this user, directly"]),
    (Place::Bare, &["ok    mounting       by this user, directly", "note  fusectl"]),
    (Place::Container, &["note  mounting       by this user, inside a user namespace", "note  passthrough"]),
    (Place::User, &["ok    mounting       through fusermount3", "note  passthrough"]),
];

fn runs_in(place: Place, pages: &[&str]) -> Result<()> {
    if !can_run() {
        return Ok(());
    }
    for name in pages {
        Ground::new(place)?.run(&page(name)?.blocks).with_context(|| format!("{name}, {place:?}"))?;
    }
    Ok(())
}

#[test]
fn without_fusectl_all_pages_run() -> Result<()> {
    let pages: Vec<&str> = crate::PAGES.iter().map(|page| page.0).collect();
    runs_in(Place::Bare, &pages)
}

/// All but loop devices, which no container has.
#[test]
fn in_a_container_the_pages_run() -> Result<()> {
    runs_in(
        Place::Container,
        &[
            "docs/quickstart.md",
            "docs/mount-a-folder.md",
            "docs/pool-disks.md",
            "docs/hide-places.md",
            "docs/seal-a-release.md",
            "docs/write-a-file-system.md",
            "docs/containers.md",
        ],
    )
}

/// All but those that give others access, or use loop devices.
#[test]
fn ordinary_users_run_the_pages() -> Result<()> {
    runs_in(
        Place::User,
        &[
            "docs/quickstart.md",
            "docs/mount-a-folder.md",
            "docs/seal-a-release.md",
            "docs/write-a-file-system.md",
        ],
    )
}

#[test]
fn what_a_place_forbids_is_said_with_what_to_do() -> Result<()> {
    if !can_run() {
        return Ok(());
    }
    for Refused { place, command, says } in REFUSED {
        let ran = Ground::new(*place)?.shell(&format!("mkdir -p ~/view; {command}"))?;
        let said = format!("{}{}", ran.stdout, ran.stderr);
        ensure!(!ran.status.success(), "{place:?}: `{command}` worked\n{said}");
        for text in *says {
            ensure!(said.contains(text), "{place:?}: `{command}` does not say `{text}`\n{said}");
        }
    }
    Ok(())
}

#[test]
fn the_doctor_says_what_each_place_allows() -> Result<()> {
    if !can_run() {
        return Ok(());
    }
    for (place, says) in ALLOWED {
        let ran = Ground::new(*place)?.shell("shunt doctor")?;
        ensure!(ran.status.success(), "{place:?}: {}\n{}{}", ran.status, ran.stdout, ran.stderr);
        for text in *says {
            ensure!(ran.stdout.contains(text), "{place:?}: the doctor does not say `{text}`\n{}", ran.stdout);
        }
    }
    Ok(())
}

//! Users and groups of this machine.

use std::os::unix::ffi::OsStringExt;
use std::sync::LazyLock;

use shuntfs_pool::policy::{POLICIES, Policy};
use shuntfs_rules::Known;

use crate::cli::WhoArgs;
use crate::control::Asker;
use crate::failure::Failure;

/// The policies that rules may place by. Of one folder all of them pick that.
static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| POLICIES.iter().map(Policy::name).collect());

/// This machine.
pub(super) struct Machine;

impl Known for Machine {
    fn user(&self, name: &str) -> Option<u32> {
        uzers::get_user_by_name(name).map(|user| user.uid())
    }

    fn group(&self, name: &str) -> Option<u32> {
        uzers::get_group_by_name(name).map(|group| group.gid())
    }

    fn policies(&self) -> &[&str] {
        &NAMES
    }
}

/// Who is asked about: a user with the groups that the machine gives it, or whoever asks.
///
/// # Errors
/// Where there is no such user.
pub(crate) fn caller(who: &WhoArgs) -> Result<Asker, Failure> {
    let exe =
        who.exe.clone().map(|path| String::from_utf8_lossy(&path.into_os_string().into_vec()).into_owned());
    let Some(wanted) = &who.user else {
        let groups = uzers::group_access_list().unwrap_or_default();
        let groups = groups.iter().map(uzers::Group::gid).collect();
        return Ok(Asker { uid: uzers::get_effective_uid(), gid: uzers::get_effective_gid(), groups, exe });
    };
    let user = match wanted.parse() {
        Ok(uid) => uzers::get_user_by_uid(uid),
        Err(_) => uzers::get_user_by_name(wanted),
    };
    if let Some(user) = user {
        let gid = user.primary_group_id();
        let groups = uzers::get_user_groups(user.name(), gid).unwrap_or_default();
        let groups = groups.iter().map(uzers::Group::gid).collect();
        return Ok(Asker { uid: user.uid(), gid, groups, exe });
    }
    // A number that nobody has can still own files and processes.
    match wanted.parse() {
        Ok(uid) => Ok(Asker { uid, gid: uid, groups: Vec::new(), exe }),
        Err(_) => Err(Failure::new(format!("there is no user `{wanted}` on this machine"))),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn root_is_known_and_nobody_else_is_made_up() {
        assert_eq!(Machine.user("root"), Some(0));
        assert_eq!(Machine.group("root"), Some(0));
        assert_eq!(Machine.user("no such user"), None);
        let of = |user: &str| caller(&WhoArgs { user: Some(user.into()), exe: None });
        assert_eq!(of("root"), of("0"));
        let stranger = of("71003").expect("a number");
        assert_eq!((stranger.uid, stranger.gid, stranger.groups.len()), (71003, 71003, 0));
        assert!(of("no such user").is_err());
    }
}

//! What is asked of a mount about sealed files.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::seal::TrustArgs;
use crate::settings::{Settings, TreeReadaheadChoice, TrustSettings, VerifyChoice};

/// The options of a mount of sealed files; [`crate::options::SECTIONS`] says what they do.
#[derive(Debug, Default, Args)]
pub struct VerifyWishes {
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) verify: Option<VerifyChoice>,
    /// Whose seals are taken.
    #[command(flatten)]
    pub trust: TrustArgs,
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) seal_store: Option<PathBuf>,
    #[arg(long, value_name = "SIZE", value_parser = crate::options::tree_cache)]
    pub(crate) tree_cache: Option<u64>,
    #[arg(long, value_enum, value_name = "WHETHER")]
    pub(crate) tree_readahead: Option<TreeReadaheadChoice>,
}

impl VerifyWishes {
    /// Settles the flags over what `-o` said.
    ///
    /// # Errors
    /// Wishes that exclude each other.
    pub(crate) fn settle(&self, settings: &mut Settings) -> Result<(), Failure> {
        let verify = &mut settings.verify;
        verify.what = self.verify.unwrap_or(verify.what);
        self.trust.settle(&mut verify.trust);
        if self.seal_store.is_some() {
            verify.store.clone_from(&self.seal_store);
        }
        verify.tree_cache = self.tree_cache.or(verify.tree_cache);
        verify.tree_readahead = self.tree_readahead.unwrap_or(verify.tree_readahead);
        check(settings)
    }

    /// The same wishes as words of a command line, with absolute paths.
    pub(crate) fn words(&self) -> std::io::Result<Vec<OsString>> {
        fn name(choice: impl ValueEnum) -> OsString {
            choice.to_possible_value().map(|value| value.get_name().into()).unwrap_or_default()
        }
        let mut words: Vec<OsString> = Vec::new();
        let mut add = |flag: &str, value: OsString| words.extend([flag.into(), value]);
        if let Some(what) = self.verify {
            add("--verify", name(what));
        }
        if let Some(store) = &self.seal_store {
            add("--seal-store", std::path::absolute(store)?.into());
        }
        if let Some(bytes) = self.tree_cache {
            add("--tree-cache", bytes.to_string().into());
        }
        if let Some(whether) = self.tree_readahead {
            add("--tree-readahead", name(whether));
        }
        words.extend(self.trust.words()?);
        Ok(words)
    }
}

fn check(settings: &Settings) -> Result<(), Failure> {
    let verify = &settings.verify;
    let asks = verify.trust != TrustSettings::default() || verify.store.is_some();
    match verify.what {
        // A key that is named and not asked for would make a mount look safer than it is.
        VerifyChoice::Off if asks => {
            Err(Failure::usage("what says whose seals are taken, and seal_store, are for verified mounts")
                .hint("add --verify=required or --verify=if-sealed"))
        }
        VerifyChoice::Required if settings.rules.is_some() => {
            Err(Failure::usage("with --verify=required the manifest alone decides what is shown, not rules")
                .hint("use --verify=if-sealed"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod test {
    use std::num::NonZeroUsize;

    use shuntfs_verity::Digest;

    use super::*;

    #[test]
    fn what_would_be_ignored_is_refused() {
        let settle = |wishes: VerifyWishes, rules: bool| {
            let mut settings = Settings { rules: rules.then(|| "rules".into()), ..Settings::default() };
            wishes.settle(&mut settings).map(|()| settings.verify).map_err(|failure| failure.to_string())
        };
        let required = || VerifyWishes { verify: Some(VerifyChoice::Required), ..VerifyWishes::default() };
        let paths = || vec![PathBuf::from("a.pub"), PathBuf::from("b.pub")];
        let keys = || TrustArgs { trust: paths(), ..TrustArgs::default() };
        let settled = settle(VerifyWishes { trust: keys(), ..required() }, false).expect("fits together");
        assert_eq!((settled.what, settled.trust.keys), (VerifyChoice::Required, paths()));
        let error = settle(VerifyWishes { trust: keys(), ..VerifyWishes::default() }, false).unwrap_err();
        assert!(error.contains("--verify=required"), "{error}");
        let error = settle(required(), true).unwrap_err();
        assert!(error.contains("if-sealed"), "{error}");
        let sealed = VerifyWishes { verify: Some(VerifyChoice::IfSealed), ..VerifyWishes::default() };
        assert!(settle(sealed, true).is_ok());
    }

    #[test]
    fn the_server_gets_the_same_words_with_whole_paths() {
        let wishes = VerifyWishes {
            verify: Some(VerifyChoice::IfSealed),
            trust: TrustArgs {
                trust: vec!["/k.pub".into(), "/l.pub".into()],
                threshold: NonZeroUsize::new(2),
                digest: Digest::from_text(&"ab".repeat(32)).ok(),
                tree: "photos".parse().ok(),
                trust_store: Some("/t".into()),
            },
            seal_store: Some("/s".into()),
            tree_cache: Some(8 << 20),
            tree_readahead: Some(TreeReadaheadChoice::Off),
        };
        let words = wishes.words().expect("a working folder");
        let line = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        assert_eq!(
            line,
            format!(
                "--verify if-sealed --seal-store /s --tree-cache 8388608 --tree-readahead off --trust /k.pub --trust /l.pub \
                 --threshold 2 --digest sha256:{} --tree photos --trust-store /t",
                "ab".repeat(32)
            )
        );
    }
}

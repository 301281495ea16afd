//! What `openssl` makes is accepted here, and what is made here by `openssl`; and `fsverity` agrees, where it is installed.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use shuntfs_verity::sign::pkcs7::{self, Certificate, Pkcs7Error};
use shuntfs_verity::sign::{KeyError, KeyPair, PublicKey, Signature, is_encrypted};
use shuntfs_verity::{Algorithm, BlockSize, Digest, Discard, Params, Salt, build};

/// Runs a program in a folder; its output where it succeeds.
fn run(folder: &Path, program: &str, arguments: &str) -> Option<String> {
    let output =
        Command::new(program).args(arguments.split_whitespace()).current_dir(folder).output().unwrap();
    if !output.status.success() {
        println!("{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("version").output().is_ok();
    if !found {
        println!("SKIPPED: {program} is not installed");
    }
    found
}

fn digest(algorithm: Algorithm, byte: u8) -> Digest {
    Digest::new(algorithm, &vec![byte; algorithm.digest_len()]).unwrap()
}

#[test]
fn openssl_checks_our_signatures_and_reads_our_keys() {
    if !is_installed("openssl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let pair = KeyPair::generate().unwrap();
    fs::write(folder.join("KEY"), &*pair.to_pem()).unwrap();
    fs::write(folder.join("KEY.pub"), pair.public().to_pem()).unwrap();
    let public = run(folder, "openssl", "pkey -in KEY -pubout").unwrap();
    assert_eq!(public, pair.public().to_pem());
    for algorithm in Algorithm::ALL {
        let digest = digest(algorithm, 3);
        fs::write(folder.join("message"), digest.formatted()).unwrap();
        fs::write(folder.join("signature"), pair.sign_digest(&digest).0).unwrap();
        let verify = "pkeyutl -verify -rawin -pubin -inkey KEY.pub -in message -sigfile signature";
        assert!(run(folder, "openssl", verify).is_some());
        fs::write(folder.join("message"), self::digest(algorithm, 4).formatted()).unwrap();
        assert!(run(folder, "openssl", verify).is_none());
    }
}

#[test]
fn a_passphrase_is_asked_for_by_both() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let pair = KeyPair::generate().unwrap();
    let text = pair.to_encrypted_pem(b"open sesame").unwrap();
    assert!(is_encrypted(&text) && !is_encrypted(&pair.to_pem()));
    assert_eq!(KeyPair::from_pem(&text).err(), Some(KeyError::Encrypted));
    assert_eq!(KeyPair::from_encrypted_pem(&text, b"open barley").err(), Some(KeyError::Passphrase));
    assert_eq!(KeyPair::from_encrypted_pem(&pair.to_pem(), b"").err(), Some(KeyError::Private));
    assert_eq!(PublicKey::from_pem(&text), Err(KeyError::PrivateForPublic));
    let read = KeyPair::from_encrypted_pem(&format!("\n{}\n", *text), b"open sesame").unwrap();
    assert_eq!(read.public(), pair.public());
    // No two are alike: salt and IV are new each time.
    assert_ne!(*text, *pair.to_encrypted_pem(b"open sesame").unwrap());
    if !is_installed("openssl") {
        return;
    }
    fs::write(folder.join("ours"), &*text).unwrap();
    assert!(run(folder, "openssl", "pkey -in ours -passin pass:sesame -pubout").is_none());
    fs::write(folder.join("passphrase"), "open sesame\n").unwrap();
    let public = run(folder, "openssl", "pkey -in ours -passin file:passphrase -pubout").unwrap();
    assert_eq!(public, pair.public().to_pem());
    fs::write(folder.join("plain"), &*pair.to_pem()).unwrap();
    for how in ["", "-v2 aes-128-cbc -v2prf hmacWithSHA512", "-scrypt", "-v2 aes-256-cbc -iter 1000"] {
        let words = format!("pkcs8 -topk8 -in plain -passout file:passphrase -out theirs {how}");
        run(folder, "openssl", &words).unwrap();
        let theirs = fs::read_to_string(folder.join("theirs")).unwrap();
        let read = KeyPair::from_encrypted_pem(&theirs, b"open sesame").unwrap();
        assert_eq!(read.public(), pair.public(), "{how}");
        assert_eq!(KeyPair::from_encrypted_pem(&theirs, b"").err(), Some(KeyError::Passphrase), "{how}");
    }
}

#[test]
fn signatures_and_keys_of_openssl_are_accepted() {
    if !is_installed("openssl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, "openssl", "genpkey -algorithm ed25519 -out KEY").unwrap();
    let pair = KeyPair::from_pem(&fs::read_to_string(folder.join("KEY")).unwrap()).unwrap();
    let public = PublicKey::from_pem(&run(folder, "openssl", "pkey -in KEY -pubout").unwrap()).unwrap();
    assert_eq!(pair.public(), public);
    let digest = digest(Algorithm::Sha256, 5);
    fs::write(folder.join("message"), digest.formatted()).unwrap();
    run(folder, "openssl", "pkeyutl -sign -rawin -inkey KEY -in message -out signature").unwrap();
    let signature = Signature(fs::read(folder.join("signature")).unwrap().try_into().unwrap());
    assert_eq!(public.verify_digest(&digest, &signature).unwrap().key(), pair.public().id());
    assert_eq!(pair.sign_digest(&digest), signature, "ed25519 is deterministic");
}

/// A key, a certificate for it and another's with the same name, and whether they could be made.
fn certificates(folder: &Path, kind: &str) {
    for name in ["signer", "other"] {
        let make = format!(
            "req -x509 -newkey {kind} -nodes -keyout {name}.key -out {name}.pem -days 30 -subj /CN={name}"
        );
        run(folder, "openssl", &make).unwrap();
    }
    run(folder, "openssl", "x509 -in signer.pem -outform DER -out signer.der").unwrap();
}

fn certificate(folder: &Path, file: &str) -> Certificate {
    Certificate::parse(&fs::read(folder.join(file)).unwrap()).unwrap()
}

const SIGN: &str =
    "smime -sign -binary -outform DER -signer signer.pem -inkey signer.key -in message -out signature";

#[test]
fn detached_pkcs7_signatures_are_checked() {
    if !is_installed("openssl") {
        return;
    }
    for kind in ["rsa:2048", "rsa:4096", "ec -pkeyopt ec_paramgen_curve:P-256"] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        certificates(folder, kind);
        let trusted = [certificate(folder, "other.pem"), certificate(folder, "signer.der")];
        assert_eq!(certificate(folder, "signer.pem").subject(), "CN=signer");
        for (algorithm, hash) in [(Algorithm::Sha256, "sha256"), (Algorithm::Sha512, "sha512")] {
            let digest = digest(algorithm, 9);
            fs::write(folder.join("message"), digest.formatted()).unwrap();
            let verify = |arguments: &str, digest: &Digest, trusted: &[Certificate]| {
                run(folder, "openssl", &format!("{SIGN} -md {hash} {arguments}")).unwrap();
                let signature = fs::read(folder.join("signature")).unwrap();
                pkcs7::verify(&signature, digest, trusted)
            };
            let plain = "-noattr -nocerts";
            assert_eq!(verify(plain, &digest, &trusted).unwrap().index(), 1, "{kind} {hash}");
            assert_eq!(verify("-noattr", &digest, &trusted).unwrap().index(), 1, "certificates are ignored");
            let wrong = self::digest(algorithm, 8);
            assert_eq!(verify(plain, &wrong, &trusted), Err(Pkcs7Error::Signature));
            assert_eq!(verify(plain, &digest, &trusted[..1]), Err(Pkcs7Error::UnknownSigner));
            assert_eq!(verify("-noattr", &digest, &trusted[..1]), Err(Pkcs7Error::UnknownSigner));
            assert_eq!(verify("-nocerts", &digest, &trusted), Err(Pkcs7Error::Attributes));
            assert_eq!(verify("-noattr -nodetach", &digest, &trusted), Err(Pkcs7Error::NotDetached));
        }
        verify_every_changed_byte(folder, &trusted);
    }
}

/// No signature passes with any byte changed, cut off anywhere, or with bytes after it.
fn verify_every_changed_byte(folder: &Path, trusted: &[Certificate]) {
    let digest = digest(Algorithm::Sha256, 1);
    fs::write(folder.join("message"), digest.formatted()).unwrap();
    run(folder, "openssl", &format!("{SIGN} -md sha256 -noattr -nocerts")).unwrap();
    let good = fs::read(folder.join("signature")).unwrap();
    assert!(pkcs7::verify(&good, &digest, trusted).is_ok());
    let mut passed = Vec::new();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x41;
        if pkcs7::verify(&bad, &digest, trusted).is_ok() {
            passed.push(at);
        }
        assert!(pkcs7::verify(&good[..at], &digest, trusted).is_err(), "cut at {at}");
    }
    // What is not signed: the versions, the list of hash algorithms and their parameters. The signature itself is at the end.
    assert!(passed.iter().all(|at| *at < good.len() - 64), "{passed:?}");
    let long = [&good[..], &[0]].concat();
    assert!(pkcs7::verify(&long, &digest, trusted).is_err());
    let long = [&good[..], &vec![0; pkcs7::SIGNATURE_LEN_MAX]].concat();
    assert_eq!(pkcs7::verify(&long, &digest, trusted), Err(Pkcs7Error::TooLong));
}

#[test]
fn certificates_that_are_not_used_are_refused() {
    if !is_installed("openssl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for kind in ["rsa:1024", "ec -pkeyopt ec_paramgen_curve:P-384", "ed25519"] {
        let make = format!("req -x509 -newkey {kind} -nodes -keyout key -out cert -days 3 -subj /CN=a");
        run(folder, "openssl", &make).unwrap();
        let refused = Certificate::parse(&fs::read(folder.join("cert")).unwrap());
        assert_eq!(refused.err(), Some(Pkcs7Error::Key), "{kind}");
        assert!(Certificate::parse(&fs::read(folder.join("key")).unwrap()).is_err());
    }
    certificates(folder, "rsa:2048");
    let signer = certificate(folder, "signer.pem");
    let now = SystemTime::now();
    assert!(signer.is_valid_at(now));
    let day = Duration::from_secs(24 * 3600);
    assert!(!signer.is_valid_at(now + 31 * day) && !signer.is_valid_at(now - 2 * day));
}

/// Every hash, block size and length of salt that `fsverity` takes, but blocks beyond 1 MiB, which differ in nothing but time.
#[test]
fn fsverity_agrees_on_digests_trees_and_descriptors() {
    if !is_installed("fsverity") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let sizes = [0, 1, 1024, 4095, 4096, 4097, 65_536, 300_001];
    let contents =
        sizes.map(|size: usize| (0..size).map(|at| (at ^ at >> 9).to_le_bytes()[0]).collect::<Vec<u8>>());
    for content in &contents {
        fs::write(folder.join(content.len().to_string()), content).unwrap();
    }
    let mut compared = 0;
    for algorithm in Algorithm::ALL {
        for block_size in (6..=20).map(|log2| 1 << log2) {
            let Ok(block_size) = BlockSize::any(block_size, algorithm) else { continue };
            for salt_len in [0, 1, 8, 31, 32] {
                let salt = Salt::new(&vec![0xa5; salt_len]).unwrap();
                let params = Params::new(algorithm, block_size, salt).unwrap();
                let given = format!("--hash-alg={algorithm} --block-size={block_size} --salt={salt}");
                let names = sizes.map(|size| size.to_string()).join(" ");
                let said = run(folder, "fsverity", &format!("digest {given} {names}")).unwrap();
                let mut ours = String::new();
                for content in &contents {
                    let size = content.len() as u64;
                    let made = build(&params, size, &content[..], Discard, NonZeroUsize::MIN).unwrap();
                    ours.push_str(&format!("{} {size}\n", made.digest()));
                }
                assert_eq!(said, ours, "{given}");
                // Trees and descriptors come one file at a time; another one each time.
                let content = &contents[compared % contents.len()];
                let size = content.len();
                let out = format!("--out-merkle-tree=tree --out-descriptor=descriptor {size}");
                run(folder, "fsverity", &format!("digest {given} {out}")).unwrap();
                let mut tree = Vec::new();
                let made = build(&params, size as u64, &content[..], &mut tree, NonZeroUsize::MIN).unwrap();
                assert!(fs::read(folder.join("tree")).unwrap() == tree, "{given}, {size} bytes");
                assert_eq!(fs::read(folder.join("descriptor")).unwrap(), made.to_bytes(), "{given}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, (15 + 14) * 5, "all were compared");
}

#[test]
fn signatures_of_fsverity_are_accepted() {
    if !is_installed("openssl") || !is_installed("fsverity") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let content: Vec<u8> = (0..300_001_usize).map(|at| at.to_le_bytes()[0]).collect();
    fs::write(folder.join("file"), &content).unwrap();
    for kind in ["rsa:2048", "ec -pkeyopt ec_paramgen_curve:P-256"] {
        certificates(folder, kind);
        let trusted = [certificate(folder, "signer.pem")];
        for algorithm in Algorithm::ALL {
            let salt: Salt = "0123456789abcdef".parse().unwrap();
            let params = Params::new(algorithm, BlockSize::new(2048).unwrap(), salt).unwrap();
            let mut tree = Vec::new();
            let size = content.len() as u64;
            let descriptor = build(&params, size, &content[..], &mut tree, NonZeroUsize::MIN).unwrap();
            let given = format!("file --hash-alg={algorithm} --block-size=2048 --salt={salt}");
            let out = "--out-merkle-tree=tree --out-descriptor=descriptor";
            let said = run(folder, "fsverity", &format!("digest {given} {out}")).unwrap();
            assert_eq!(said, format!("{} file\n", descriptor.digest()));
            assert!(fs::read(folder.join("tree")).unwrap() == tree);
            assert_eq!(fs::read(folder.join("descriptor")).unwrap(), descriptor.to_bytes());
            let sign = given.replacen("file", "file signature --key=signer.key --cert=signer.pem", 1);
            run(folder, "fsverity", &format!("sign {sign}")).unwrap();
            let signature = fs::read(folder.join("signature")).unwrap();
            assert!(pkcs7::verify(&signature, &descriptor.digest(), &trusted).is_ok(), "{kind} {algorithm}");
        }
    }
}

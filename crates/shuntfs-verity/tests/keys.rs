//! Keys, their texts, and what they sign.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

use shuntfs_verity::sign::{KeyError, KeyId, KeyPair, Message, PublicKey, Signature, SignatureError};
use shuntfs_verity::{Algorithm, Digest};

/// From RFC 8410, section 10.3: a private key, and its public key as in section 10.1.
const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC
-----END PRIVATE KEY-----
";
const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=
-----END PUBLIC KEY-----
";

fn digest(byte: u8) -> Digest {
    Digest::new(Algorithm::Sha256, &[byte; 32]).unwrap()
}

#[test]
fn the_texts_are_those_of_the_standard() {
    let pair = KeyPair::from_pem(PRIVATE).unwrap();
    assert_eq!(*pair.to_pem(), PRIVATE);
    assert_eq!(pair.public().to_pem(), PUBLIC);
    assert_eq!(PublicKey::from_pem(PUBLIC).unwrap(), pair.public());
    // Editors leave blank lines.
    assert_eq!(PublicKey::from_pem(&format!("\n{PUBLIC}\n\n")).unwrap(), pair.public());
}

#[test]
fn a_new_key_is_another_one() {
    let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    assert_ne!(one.public(), other.public());
    assert_ne!(one.public().id(), other.public().id());
    let read = KeyPair::from_pem(&one.to_pem()).unwrap();
    assert_eq!(read.public(), one.public());
    let id: KeyId = one.public().id().to_string().parse().unwrap();
    assert_eq!(id, one.public().id());
    assert_eq!("00".parse::<KeyId>(), Err(KeyError::Id));
}

#[test]
fn nothing_of_a_private_key_is_printed() {
    let pair = KeyPair::from_pem(PRIVATE).unwrap();
    let printed = format!("{pair:?}");
    assert!(printed.contains(&pair.public().id().to_string()));
    assert!(!printed.to_lowercase().contains("d4ee72db") && printed.len() < 100, "{printed}");
}

#[test]
fn what_is_no_key_is_refused() {
    assert_eq!(PublicKey::from_pem(PRIVATE), Err(KeyError::PrivateForPublic));
    assert_eq!(KeyPair::from_pem(PUBLIC).err(), Some(KeyError::Private));
    for wrong in ["", "MC4C", &PUBLIC[..70], &PUBLIC.replace("MCow", "MCox"), &PUBLIC.replace('=', "")] {
        assert_eq!(PublicKey::from_pem(wrong), Err(KeyError::Public), "{wrong}");
    }
    // The point of order 1, with which anybody can sign.
    let weak = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
-----END PUBLIC KEY-----
";
    assert_eq!(PublicKey::from_pem(weak), Err(KeyError::Weak));
}

#[test]
fn a_signature_is_for_one_key_and_one_thing() {
    let (pair, other) = (KeyPair::from_pem(PRIVATE).unwrap(), KeyPair::generate().unwrap());
    let signature = pair.sign_digest(&digest(1));
    let signed = pair.public().verify_digest(&digest(1), &signature).unwrap();
    assert_eq!(signed.key(), pair.public().id());
    assert_eq!(pair.public().verify_digest(&digest(2), &signature), Err(SignatureError));
    assert_eq!(other.public().verify_digest(&digest(1), &signature), Err(SignatureError));
    for bit in 0..8 * Signature::LEN {
        let mut bad = signature;
        bad.0[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(pair.public().verify_digest(&digest(1), &bad), Err(SignatureError), "bit {bit}");
    }
}

#[test]
fn a_message_is_no_digest_and_no_other_message() {
    let pair = KeyPair::generate().unwrap();
    let message = Message::new("shuntfs test 1").part(b"a").part(&digest(1).formatted());
    let signature = pair.sign_message(&message);
    assert!(pair.public().verify_message(&message, &signature).is_ok());
    assert!(pair.public().verify_digest(&digest(1), &signature).is_err());
    let other = Message::new("shuntfs test 2").part(b"a").part(&digest(1).formatted());
    assert!(pair.public().verify_message(&other, &signature).is_err());
}

//! The hashes of MySQL's two authentication plugins. They hide the password in transit, but only TLS protects it.

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};

/// The answer to a challenge in `mysql_native_password`: `SHA1(password) XOR SHA1(challenge, SHA1(SHA1(password)))`.
pub(super) fn native_answer(password: &[u8], challenge: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let once = sha1(password);
    let twice = sha1(&once);
    xor(&once, &sha1(&[challenge, &twice].concat()))
}

/// The answer to a challenge in `caching_sha2_password`: `SHA256(password) XOR SHA256(SHA256(SHA256(password)), challenge)`.
pub(super) fn caching_answer(password: &[u8], challenge: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let once = sha256(password);
    let twice = sha256(&once);
    xor(&once, &sha256(&[&twice, challenge].concat()))
}

fn xor(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    digest(&SHA256, bytes).as_ref().to_vec()
}

fn sha1(bytes: &[u8]) -> Vec<u8> {
    digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_needs_the_password_and_the_challenge() {
        let (one, other) = ([1; 20], [2; 20]);
        for answer in [native_answer, caching_answer] {
            assert_eq!(answer(b"secret", &one), answer(b"secret", &one));
            assert_ne!(answer(b"secret", &one), answer(b"secret", &other));
            assert_ne!(answer(b"secret", &one), answer(b"other", &one));
            assert!(answer(b"", &one).is_empty(), "no password is no answer");
        }
    }
}

//! The hashes of MySQL's two ways to log in. They keep a password from being read on the way; TLS is what protects it.

use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;

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

/// That of rustls, which every build with this store has.
fn sha256(bytes: &[u8]) -> Vec<u8> {
    let suite = TLS13_AES_128_GCM_SHA256.tls13().expect("it is a suite of TLS 1.3");
    suite.common.hash_provider.hash(bytes).as_ref().to_vec()
}

/// SHA-1 (FIPS 180-4), which rustls does not have. A login is all that it is used for.
fn sha1(bytes: &[u8]) -> Vec<u8> {
    const BLOCK: usize = 64;
    let mut state: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    while padded.len() % BLOCK != BLOCK - 8 {
        padded.push(0);
    }
    padded.extend((bytes.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks_exact(BLOCK) {
        let mut words = [0_u32; 80];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        for at in 16..80 {
            words[at] = (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (round, word) in words.iter().enumerate() {
            let (mixed, constant) = match round {
                0..20 => ((b & c) | (!b & d), 0x5a82_7999),
                20..40 => (b ^ c ^ d, 0x6ed9_eba1),
                40..60 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6_u32),
            };
            let next = a.rotate_left(5).wrapping_add(mixed).wrapping_add(e);
            (a, b, c, d, e) = (next.wrapping_add(constant).wrapping_add(*word), a, b.rotate_left(30), c, d);
        }
        for (kept, added) in state.iter_mut().zip([a, b, c, d, e]) {
            *kept = kept.wrapping_add(added);
        }
    }
    state.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_hashes_are_those_of_their_standards() {
        assert_eq!(hex(&sha1(b"")), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(hex(&sha1(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(&sha1(two_blocks)), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(hex(&sha1(&[b'a'; 1_000_000])), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
        assert_eq!(hex(&sha256(b"abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

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

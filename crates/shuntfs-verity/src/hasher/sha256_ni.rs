//! SHA-256 of two blocks at once by the processor's own instructions (SHA-NI). One block leaves them idle half of the time: each
//! step waits for the one before.
//!
//! # Safety
//! The instructions are there: a [`Cpu`] is made only where the processor was asked for them, and nothing runs without one.
//! Memory is read through arrays of the registers' size.
#![expect(unsafe_code, reason = "loads of whole registers, and calls of functions that need SHA-NI")]

use std::arch::x86_64::{
    __m128i, _mm_add_epi32, _mm_alignr_epi8, _mm_loadu_si128, _mm_set_epi32, _mm_set_epi64x,
    _mm_setzero_si128, _mm_sha256msg1_epu32, _mm_sha256msg2_epu32, _mm_sha256rnds2_epu32, _mm_shuffle_epi8,
    _mm_shuffle_epi32, _mm_storeu_si128,
};

use super::constants::ROUNDS_256;

/// Blocks hashed at once.
pub(super) const LANES: usize = 2;

/// A processor with SHA-NI.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cpu(());

impl Cpu {
    pub(super) fn detect() -> Option<Self> {
        let there = is_x86_feature_detected!("sha") && is_x86_feature_detected!("sse4.1");
        (there && is_x86_feature_detected!("ssse3")).then_some(Self(()))
    }

    /// The states after the pieces of each lane and one `last` piece for all. Lanes are equally long.
    pub(super) fn hash(
        self,
        start: &[u32; 8],
        lanes: &[&[[u8; 64]]; LANES],
        last: &[u8; 64],
    ) -> [[u32; 8]; LANES] {
        // SAFETY: `self` proves that the processor has what `hash` needs.
        unsafe { hash(start, lanes, last) }
    }
}

/// The state of all lanes, as the instructions want it: words a, b, e, f and c, d, g, h.
#[derive(Clone, Copy)]
struct State {
    abef: [__m128i; LANES],
    cdgh: [__m128i; LANES],
}

#[target_feature(enable = "sha,sse4.1,ssse3")]
fn hash(start: &[u32; 8], lanes: &[&[[u8; 64]]; LANES], last: &[u8; 64]) -> [[u32; 8]; LANES] {
    let [a, b, c, d, e, f, g, h] = start.map(u32::cast_signed);
    let mut state =
        State { abef: [_mm_set_epi32(a, b, e, f); LANES], cdgh: [_mm_set_epi32(c, d, g, h); LANES] };
    let count = lanes.iter().map(|lane| lane.len()).min().unwrap_or(0);
    let lanes = lanes.map(|lane| &lane[..count]);
    for index in 0..count {
        state = compress(state, lanes.map(|lane| &lane[index]));
    }
    state = compress(state, [last; LANES]);
    std::array::from_fn(|lane| {
        let ([f, e, b, a], [h, g, d, c]) = (store(state.abef[lane]), store(state.cdgh[lane]));
        [a, b, c, d, e, f, g, h]
    })
}

#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn compress(before: State, pieces: [&[u8; 64]; LANES]) -> State {
    let (keys, _) = ROUNDS_256.as_chunks::<4>();
    let mut state = before;
    // The last sixteen words of the schedule of each lane, four in a register.
    let mut words = [[_mm_setzero_si128(); LANES]; 4];
    for four in 0..4 {
        for lane in 0..LANES {
            let (bytes, _) = pieces[lane].as_chunks::<16>();
            words[four][lane] = load(&bytes[four]);
        }
        state = four_rounds(state, words[four], &keys[four]);
    }
    for keys in &keys[4..] {
        let [w0, w1, w2, w3] = words;
        let mut next = w0;
        for lane in 0..LANES {
            let sum = _mm_sha256msg1_epu32(w0[lane], w1[lane]);
            let sum = _mm_add_epi32(sum, _mm_alignr_epi8::<4>(w3[lane], w2[lane]));
            next[lane] = _mm_sha256msg2_epu32(sum, w3[lane]);
        }
        words = [w1, w2, w3, next];
        state = four_rounds(state, next, keys);
    }
    for lane in 0..LANES {
        state.abef[lane] = _mm_add_epi32(state.abef[lane], before.abef[lane]);
        state.cdgh[lane] = _mm_add_epi32(state.cdgh[lane], before.cdgh[lane]);
    }
    state
}

#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn four_rounds(mut state: State, words: [__m128i; LANES], keys: &[u32; 4]) -> State {
    let [k0, k1, k2, k3] = keys.map(u32::cast_signed);
    let keys = _mm_set_epi32(k3, k2, k1, k0);
    for (lane, words) in words.into_iter().enumerate() {
        let sums = _mm_add_epi32(words, keys);
        state.cdgh[lane] = _mm_sha256rnds2_epu32(state.cdgh[lane], state.abef[lane], sums);
        let sums = _mm_shuffle_epi32::<0x0e>(sums);
        state.abef[lane] = _mm_sha256rnds2_epu32(state.abef[lane], state.cdgh[lane], sums);
    }
    state
}

/// Words of 32 bits, from their order in the message to the processor's.
#[target_feature(enable = "sse2,ssse3")]
#[inline]
fn load(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: 16 bytes are read from an array of 16 bytes.
    let words = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
    _mm_shuffle_epi8(words, _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203))
}

#[target_feature(enable = "sse2")]
#[inline]
fn store(words: __m128i) -> [u32; 4] {
    let mut out = [0; 4];
    // SAFETY: 16 bytes are written to an array of 4 words.
    unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), words) };
    out
}

//! SHA-256 of 16 blocks at once: a lane of 32 bits each in the registers of AVX-512.
//!
//! # Safety
//! The instructions are there: a [`Cpu`] is made only where the processor was asked for them, and nothing runs without one.
//! Memory is read through arrays of the registers' size.
#![expect(unsafe_code, reason = "loads of whole registers, and calls of functions that need AVX-512")]

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_loadu_si512, _mm512_ror_epi32, _mm512_set1_epi32, _mm512_set4_epi32,
    _mm512_setzero_si512, _mm512_shuffle_epi8, _mm512_shuffle_i32x4, _mm512_srli_epi32, _mm512_storeu_si512,
    _mm512_ternarylogic_epi32, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32,
    _mm512_unpacklo_epi64,
};

use super::constants::ROUNDS_256;

/// Blocks hashed at once.
pub(super) const LANES: usize = 16;

/// Truth tables of three inputs, for `ternarylogic`.
const XOR: i32 = 0x96;
const CHOOSE: i32 = 0xca;
const MAJORITY: i32 = 0xe8;

/// A processor with AVX-512 F and BW.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cpu(());

impl Cpu {
    pub(super) fn detect() -> Option<Self> {
        let there = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        there.then_some(Self(()))
    }

    /// The states after `pieces` of each lane and one `last` piece for all. Lanes are equally long.
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

/// One word of the state in all lanes, eight words.
type State = [__m512i; 8];

#[target_feature(enable = "avx512f,avx512bw")]
fn hash(start: &[u32; 8], lanes: &[&[[u8; 64]]; LANES], last: &[u8; 64]) -> [[u32; 8]; LANES] {
    let mut state = start.map(|word| _mm512_set1_epi32(word.cast_signed()));
    let count = lanes.iter().map(|lane| lane.len()).min().unwrap_or(0);
    let lanes = lanes.map(|lane| &lane[..count]);
    let (last, _) = last.as_chunks::<4>();
    for index in 0..=count {
        let mut words = [_mm512_setzero_si512(); 16];
        if index < count {
            for (word, lane) in words.iter_mut().zip(&lanes) {
                *word = load(&lane[index]);
            }
            words = transposed(words);
        } else {
            for (word, bytes) in words.iter_mut().zip(last) {
                *word = _mm512_set1_epi32(i32::from_be_bytes(*bytes));
            }
        }
        state = compress(state, words);
    }
    let stored = state.map(|word| store(word));
    std::array::from_fn(|lane| stored.map(|words| words[lane]))
}

/// Words of 32 bits, from their order in the message to the processor's.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn load(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: 64 bytes are read from an array of 64 bytes.
    let words = unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
    let swap = _mm512_set4_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203);
    _mm512_shuffle_epi8(words, swap)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store(word: __m512i) -> [u32; LANES] {
    let mut out = [0; LANES];
    // SAFETY: 64 bytes are written to an array of 16 words.
    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), word) };
    out
}

/// From 16 words of one lane in each register to one word of 16 lanes in each.
#[target_feature(enable = "avx512f")]
#[inline]
fn transposed(rows: [__m512i; 16]) -> [__m512i; 16] {
    // In each quarter of 128 bits: 4x4 of neighbouring rows.
    let mut quarters = rows;
    for four in 0..4 {
        let [a, b, c, d] = [0, 1, 2, 3].map(|row| rows[4 * four + row]);
        let (ab_low, ab_high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        let (cd_low, cd_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
        quarters[4 * four] = _mm512_unpacklo_epi64(ab_low, cd_low);
        quarters[4 * four + 1] = _mm512_unpackhi_epi64(ab_low, cd_low);
        quarters[4 * four + 2] = _mm512_unpacklo_epi64(ab_high, cd_high);
        quarters[4 * four + 3] = _mm512_unpackhi_epi64(ab_high, cd_high);
    }
    // Then 4x4 of the quarters.
    let mut out = rows;
    for word in 0..4 {
        let [a, b, c, d] = [0, 1, 2, 3].map(|four| quarters[4 * four + word]);
        let ab_even = _mm512_shuffle_i32x4::<0x88>(a, b);
        let ab_odd = _mm512_shuffle_i32x4::<0xdd>(a, b);
        let cd_even = _mm512_shuffle_i32x4::<0x88>(c, d);
        let cd_odd = _mm512_shuffle_i32x4::<0xdd>(c, d);
        out[word] = _mm512_shuffle_i32x4::<0x88>(ab_even, cd_even);
        out[word + 4] = _mm512_shuffle_i32x4::<0x88>(ab_odd, cd_odd);
        out[word + 8] = _mm512_shuffle_i32x4::<0xdd>(ab_even, cd_even);
        out[word + 12] = _mm512_shuffle_i32x4::<0xdd>(ab_odd, cd_odd);
    }
    out
}

#[target_feature(enable = "avx512f")]
#[inline]
fn compress(before: State, mut words: [__m512i; 16]) -> State {
    let (keys, _) = ROUNDS_256.as_chunks::<16>();
    let mut state = before;
    // One place that calls each of the two, so that the compiler puts them in here and all stays in registers.
    for (group, keys) in keys.iter().enumerate() {
        if group > 0 {
            words = expanded(words);
        }
        state = sixteen_rounds(state, &words, keys);
    }
    let mut after = before;
    for (after, word) in after.iter_mut().zip(state) {
        *after = _mm512_add_epi32(*after, word);
    }
    after
}

/// Written out, so that state and words stay in registers: 24 of the 32.
#[target_feature(enable = "avx512f")]
#[inline]
fn sixteen_rounds(s: State, w: &[__m512i; 16], k: &[u32; 16]) -> State {
    let s = round(s, w[0], k[0]);
    let s = round(s, w[1], k[1]);
    let s = round(s, w[2], k[2]);
    let s = round(s, w[3], k[3]);
    let s = round(s, w[4], k[4]);
    let s = round(s, w[5], k[5]);
    let s = round(s, w[6], k[6]);
    let s = round(s, w[7], k[7]);
    let s = round(s, w[8], k[8]);
    let s = round(s, w[9], k[9]);
    let s = round(s, w[10], k[10]);
    let s = round(s, w[11], k[11]);
    let s = round(s, w[12], k[12]);
    let s = round(s, w[13], k[13]);
    let s = round(s, w[14], k[14]);
    round(s, w[15], k[15])
}

/// The next sixteen words of the schedule.
#[target_feature(enable = "avx512f")]
#[inline]
fn expanded(mut w: [__m512i; 16]) -> [__m512i; 16] {
    w[0] = expand(w[0], w[1], w[9], w[14]);
    w[1] = expand(w[1], w[2], w[10], w[15]);
    w[2] = expand(w[2], w[3], w[11], w[0]);
    w[3] = expand(w[3], w[4], w[12], w[1]);
    w[4] = expand(w[4], w[5], w[13], w[2]);
    w[5] = expand(w[5], w[6], w[14], w[3]);
    w[6] = expand(w[6], w[7], w[15], w[4]);
    w[7] = expand(w[7], w[8], w[0], w[5]);
    w[8] = expand(w[8], w[9], w[1], w[6]);
    w[9] = expand(w[9], w[10], w[2], w[7]);
    w[10] = expand(w[10], w[11], w[3], w[8]);
    w[11] = expand(w[11], w[12], w[4], w[9]);
    w[12] = expand(w[12], w[13], w[5], w[10]);
    w[13] = expand(w[13], w[14], w[6], w[11]);
    w[14] = expand(w[14], w[15], w[7], w[12]);
    w[15] = expand(w[15], w[0], w[8], w[13]);
    w
}

#[target_feature(enable = "avx512f")]
#[inline]
fn round([a, b, c, d, e, f, g, h]: State, word: __m512i, key: u32) -> State {
    let key = _mm512_set1_epi32(key.cast_signed());
    let chosen = _mm512_ternarylogic_epi32::<CHOOSE>(e, f, g);
    let mixed_e = xor(_mm512_ror_epi32::<6>(e), _mm512_ror_epi32::<11>(e), _mm512_ror_epi32::<25>(e));
    // The sum that does not wait for `e` first.
    let sum = _mm512_add_epi32(_mm512_add_epi32(h, key), word);
    let sum = _mm512_add_epi32(sum, _mm512_add_epi32(chosen, mixed_e));
    let mixed_a = xor(_mm512_ror_epi32::<2>(a), _mm512_ror_epi32::<13>(a), _mm512_ror_epi32::<22>(a));
    let majority = _mm512_ternarylogic_epi32::<MAJORITY>(a, b, c);
    let first = _mm512_add_epi32(sum, _mm512_add_epi32(mixed_a, majority));
    [first, a, b, c, _mm512_add_epi32(d, sum), e, f, g]
}

#[target_feature(enable = "avx512f")]
#[inline]
fn expand(w0: __m512i, w1: __m512i, w9: __m512i, w14: __m512i) -> __m512i {
    let low = xor(_mm512_ror_epi32::<7>(w1), _mm512_ror_epi32::<18>(w1), _mm512_srli_epi32::<3>(w1));
    let high = xor(_mm512_ror_epi32::<17>(w14), _mm512_ror_epi32::<19>(w14), _mm512_srli_epi32::<10>(w14));
    _mm512_add_epi32(_mm512_add_epi32(w0, low), _mm512_add_epi32(w9, high))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn xor(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<XOR>(a, b, c)
}

//! SHA-256 of 16 blocks at once, a lane of 32 bits each in the registers of AVX-512, or of two such groups.
//!
//! Each round waits for the one before, which leaves a wide processor idle: two groups in turns fill that. Words of the schedule
//! then lie in memory, whose loads cost nothing beside. One group had 5.0 GB/s with all words in registers, 5.4 with the
//! schedule worked out round by round, and two groups have 5.7, in turns on one core (Zen 5) and 4 KiB blocks in its cache.
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

/// Blocks in a group.
pub(super) const LANES: usize = 16;

/// The pieces of each block of a group.
pub(super) type Lanes<'a> = [&'a [[u8; 64]]; LANES];

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

    /// The states after the pieces of each lane and one `last` piece for all, of one group or two. Lanes are equally long.
    pub(super) fn hash<const GROUPS: usize>(
        self,
        start: &[u32; 8],
        lanes: &[Lanes<'_>; GROUPS],
        last: &[u8; 64],
    ) -> [[[u32; 8]; LANES]; GROUPS] {
        const { assert!(GROUPS == 1 || GROUPS == 2, "`step` writes them out") };
        // SAFETY: `self` proves that the processor has what `hash` needs.
        unsafe { hash(start, lanes, last) }
    }
}

/// One word of the state in all lanes, eight words.
type State = [__m512i; 8];
/// The words of the schedule that the next rounds need, in all lanes.
type Words = [__m512i; 16];

#[target_feature(enable = "avx512f,avx512bw")]
fn hash<const GROUPS: usize>(
    start: &[u32; 8],
    lanes: &[Lanes<'_>; GROUPS],
    last: &[u8; 64],
) -> [[[u32; 8]; LANES]; GROUPS] {
    let mut states = [start.map(|word| _mm512_set1_epi32(word.cast_signed())); GROUPS];
    let count = lanes.as_flattened().iter().map(|lane| lane.len()).min().unwrap_or(0);
    let mut words = [[_mm512_setzero_si512(); 16]; GROUPS];
    let (last, _) = last.as_chunks::<4>();
    // One place that calls `compress`, so that the compiler puts it in here and states stay in registers.
    for index in 0..=count {
        for (words, lanes) in words.iter_mut().zip(lanes) {
            if index < count {
                for (word, lane) in words.iter_mut().zip(lanes) {
                    *word = load(&lane[index]);
                }
                *words = transposed(*words);
            } else {
                for (word, bytes) in words.iter_mut().zip(last) {
                    *word = _mm512_set1_epi32(i32::from_be_bytes(*bytes));
                }
            }
        }
        compress(&mut states, &mut words);
    }
    states.map(|state| {
        let stored = state.map(|word| store(word));
        std::array::from_fn(|lane| stored.map(|words| words[lane]))
    })
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
fn compress<const GROUPS: usize>(before: &mut [State; GROUPS], words: &mut [Words; GROUPS]) {
    let (keys, _) = ROUNDS_256.as_chunks::<16>();
    let mut states = *before;
    for (index, keys) in keys.iter().enumerate() {
        states = if index == 0 {
            sixteen_rounds::<GROUPS, false>(states, words, keys)
        } else {
            sixteen_rounds::<GROUPS, true>(states, words, keys)
        };
    }
    for (before, state) in before.iter_mut().zip(states) {
        for (before, word) in before.iter_mut().zip(state) {
            *before = _mm512_add_epi32(*before, word);
        }
    }
}

/// Written out, so that states stay in registers.
#[target_feature(enable = "avx512f")]
#[inline]
fn sixteen_rounds<const GROUPS: usize, const EXPAND: bool>(
    s: [State; GROUPS],
    w: &mut [Words; GROUPS],
    k: &[u32; 16],
) -> [State; GROUPS] {
    let s = step::<GROUPS, EXPAND, 0>(s, w, k[0]);
    let s = step::<GROUPS, EXPAND, 1>(s, w, k[1]);
    let s = step::<GROUPS, EXPAND, 2>(s, w, k[2]);
    let s = step::<GROUPS, EXPAND, 3>(s, w, k[3]);
    let s = step::<GROUPS, EXPAND, 4>(s, w, k[4]);
    let s = step::<GROUPS, EXPAND, 5>(s, w, k[5]);
    let s = step::<GROUPS, EXPAND, 6>(s, w, k[6]);
    let s = step::<GROUPS, EXPAND, 7>(s, w, k[7]);
    let s = step::<GROUPS, EXPAND, 8>(s, w, k[8]);
    let s = step::<GROUPS, EXPAND, 9>(s, w, k[9]);
    let s = step::<GROUPS, EXPAND, 10>(s, w, k[10]);
    let s = step::<GROUPS, EXPAND, 11>(s, w, k[11]);
    let s = step::<GROUPS, EXPAND, 12>(s, w, k[12]);
    let s = step::<GROUPS, EXPAND, 13>(s, w, k[13]);
    let s = step::<GROUPS, EXPAND, 14>(s, w, k[14]);
    step::<GROUPS, EXPAND, 15>(s, w, k[15])
}

/// A round of each group, and the word of the schedule that it needs.
#[target_feature(enable = "avx512f")]
#[inline]
fn step<const GROUPS: usize, const EXPAND: bool, const WORD: usize>(
    mut states: [State; GROUPS],
    words: &mut [Words; GROUPS],
    key: u32,
) -> [State; GROUPS] {
    // No loops over groups: the compiler then keeps states in memory, and is a seventh slower.
    if EXPAND {
        expand::<WORD>(&mut words[0]);
        if GROUPS > 1 {
            expand::<WORD>(&mut words[1]);
        }
    }
    states[0] = round(states[0], words[0][WORD], key);
    if GROUPS > 1 {
        states[1] = round(states[1], words[1][WORD], key);
    }
    states
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

/// Puts the word of sixteen rounds later instead of this one.
#[target_feature(enable = "avx512f")]
#[inline]
fn expand<const WORD: usize>(w: &mut Words) {
    let [w0, w1, w9, w14] = [0, 1, 9, 14].map(|later| w[(WORD + later) % 16]);
    let low = xor(_mm512_ror_epi32::<7>(w1), _mm512_ror_epi32::<18>(w1), _mm512_srli_epi32::<3>(w1));
    let high = xor(_mm512_ror_epi32::<17>(w14), _mm512_ror_epi32::<19>(w14), _mm512_srli_epi32::<10>(w14));
    w[WORD] = _mm512_add_epi32(_mm512_add_epi32(w0, low), _mm512_add_epi32(w9, high));
}

#[target_feature(enable = "avx512f")]
#[inline]
fn xor(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<XOR>(a, b, c)
}

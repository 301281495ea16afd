//! READ and WRITE of files whose bytes come from several places.
//!
//! A request that one run of a lower file covers is moved whole, as a delegated one; the others are put
//! together piece by piece. By zero copy, too: each piece of a READ goes straight to its place among the caller's pages, and only what the
//! file system makes up goes through memory. A WRITE of several pieces is fetched first, unless the file system takes it unseen.

use shuntfs_transport::Exchange;
use shuntfs_wire::{ByteRange, Errno, Result, WriteOut};

use super::answer::Answer;
use crate::cx::Cx;
use crate::delegation::Flow;
use crate::filesystem::Filesystem;
use crate::range_map::{RangeMap, RangeSource, run};
use crate::reply::{ReadReply, WriteData, Written, read as read_lower};
use crate::server::Server;

pub(super) async fn read<F: Filesystem>(
    server: &Server<F>,
    cx: &Cx<'_>,
    x: &mut Exchange,
    (file, map): (&F::File, &dyn RangeMap),
    at: ByteRange,
) -> Result<Answer> {
    let total = (at.len as usize).min(x.payload_len());
    let (mut done, mut copied) = (0, !x.is_in_pages());
    while done < total {
        let offset = at.offset.checked_add(done as u64).ok_or(Errno::INVAL)?;
        let (source, len) = run(map, offset, total - done);
        let filled = match source {
            RangeSource::End => break,
            RangeSource::Lower(lower, from) => {
                let range = ByteRange { offset: from, len: u32::try_from(len).unwrap_or(u32::MAX) };
                if len == total {
                    return Ok(Answer::RelayRead(lower, range));
                }
                let moved = read_lower(x, done, &lower, range).await?.min(len);
                lower.count_read(moved as u64);
                moved
            }
            RangeSource::Zeroes if x.is_in_pages() => {
                Box::pin(x.zero(done..done + len)).await?;
                len
            }
            RangeSource::Zeroes => {
                x.payload_mut()[done..][..len].fill(0);
                len
            }
            RangeSource::Served => {
                let range = ByteRange { offset, len: u32::try_from(len).unwrap_or(u32::MAX) };
                x.with_payload().await;
                let filled = server.fs.read(cx, file, range, ReadReply::new(x, done, len)).await?.filled()?;
                if x.is_in_pages() {
                    copied |= !x.has_moved();
                    Box::pin(x.put(done..done + filled)).await?;
                }
                filled
            }
        };
        done += filled;
        if filled < len {
            break;
        }
    }
    Ok(Answer::Read(done, if copied { Flow::Ranges } else { Flow::ZeroCopy }))
}

pub(super) async fn write<F: Filesystem>(
    server: &Server<F>,
    cx: &Cx<'_>,
    (file, map): (&F::File, &dyn RangeMap),
    at: u64,
    data: WriteData<'_>,
) -> Result<Answer> {
    let total = data.len();
    // As for a file that is moved whole: the library's threads would strip what this one is to leave.
    let keeps = !data.kill_priv() && server.fs.keeps_set_ids(file);
    let mut done = 0;
    while done < total {
        let offset = at.checked_add(done as u64).ok_or(Errno::FBIG)?;
        let (source, len) = run(map, offset, total - done);
        let part = data.part(done, len);
        let outcome = match source {
            RangeSource::Lower(..) if keeps => server.fs.write(cx, file, offset, part).await,
            RangeSource::Lower(lower, to) if len == total => return Ok(Answer::RelayWrite(lower, to)),
            RangeSource::Lower(lower, to) => part.write_to(cx, &lower, to).await,
            RangeSource::Zeroes | RangeSource::Served | RangeSource::End => {
                server.fs.write(cx, file, offset, part).await
            }
        };
        let written = match outcome {
            Ok(Written(written)) => (written as usize).min(len),
            // What was written before the error is the answer; the caller meets the error at the next write.
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        };
        done += written;
        if written < len {
            break;
        }
    }
    let size = u32::try_from(done).map_err(|_| Errno::IO)?;
    let flow = if data.is_unseen() { Flow::ZeroCopy } else { Flow::Ranges };
    Ok(Answer::Written(WriteOut { size, padding: 0 }, flow))
}

//! Metadata of kernels: MessagePack.

use amdev_core::program::metadata::{Arg, KernelMetadata, Metadata};
use amdev_core::program::msgpack::{MAX_DEPTH, MsgPackError, Reader, Value};

/// A value with what it contains: the plain representation, which tests write from. Floats are kept
/// as their bits, so that values that are no numbers compare.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the kinds are those of MessagePack
pub enum Tree {
    Nil,
    Bool(bool),
    Uint(u64),
    Int(i64),
    Float(u64),
    Str(String),
    Bin(Vec<u8>),
    Array(Vec<Tree>),
    Map(Vec<(Tree, Tree)>),
    Ext(i8, Vec<u8>),
}

impl Tree {
    /// Reads one value.
    pub fn read(r: &mut Reader<'_>) -> Result<Tree, MsgPackError> {
        Ok(match r.value()? {
            Value::Nil => Tree::Nil,
            Value::Bool(b) => Tree::Bool(b),
            Value::Uint(n) => Tree::Uint(n),
            Value::Int(n) => Tree::Int(n),
            Value::Float(f) => Tree::Float(f.to_bits()),
            Value::Str(s) => Tree::Str(s.into()),
            Value::Bin(b) => Tree::Bin(b.into()),
            Value::Ext(kind, b) => Tree::Ext(kind, b.into()),
            Value::Array(n) => Tree::Array((0..n).map(|_| Tree::read(r)).collect::<Result<_, _>>()?),
            Value::Map(n) => {
                Tree::Map((0..n).map(|_| Ok((Tree::read(r)?, Tree::read(r)?))).collect::<Result<_, _>>()?)
            }
        })
    }

    /// Appends the shortest encoding.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Tree::Nil => out.push(0xc0),
            Tree::Bool(b) => out.push(0xc2 + u8::from(*b)),
            Tree::Uint(n @ 0..0x80) => out.push(*n as u8),
            Tree::Uint(n) => sized(out, 0xcc, *n),
            Tree::Int(n @ -32..0) => out.push(*n as u8),
            Tree::Int(n) => {
                let width = [8, 16, 32].iter().position(|bits| *n >= -(1i64 << (bits - 1))).unwrap_or(3);
                out.push(0xd0 + width as u8);
                out.extend_from_slice(&n.to_be_bytes()[8 - (1 << width)..]);
            }
            Tree::Float(bits) => {
                out.push(0xcb);
                out.extend_from_slice(&bits.to_be_bytes());
            }
            Tree::Str(s) => {
                match s.len() {
                    n @ 0..32 => out.push(0xa0 | n as u8),
                    n => sized(out, 0xd9, n as u64),
                }
                out.extend_from_slice(s.as_bytes());
            }
            Tree::Bin(b) => {
                sized(out, 0xc4, b.len() as u64);
                out.extend_from_slice(b);
            }
            Tree::Ext(kind, b) => {
                match b.len() {
                    n @ (1 | 2 | 4 | 8 | 16) => out.push(0xd4 + n.trailing_zeros() as u8),
                    n => sized(out, 0xc7, n as u64),
                }
                out.push(*kind as u8);
                out.extend_from_slice(b);
            }
            Tree::Array(items) => {
                count(out, 0x90, 0xdc, items.len());
                items.iter().for_each(|i| i.emit(out));
            }
            Tree::Map(pairs) => {
                count(out, 0x80, 0xde, pairs.len());
                for (key, value) in pairs {
                    key.emit(out);
                    value.emit(out);
                }
            }
        }
    }
}

/// A tag of the family that starts at `first`, for the width that `n` needs, and `n`.
fn sized(out: &mut Vec<u8>, first: u8, n: u64) {
    let width = match n {
        0..=0xff => 0,
        0x100..=0xffff => 1,
        0x1_0000..=0xffff_ffff => 2,
        _ => 3,
    };
    out.push(first + width);
    out.extend_from_slice(&n.to_be_bytes()[8 - (1 << width)..]);
}

fn count(out: &mut Vec<u8>, short: u8, long: u8, n: usize) {
    match n {
        0..16 => out.push(short | n as u8),
        16..0x1_0000 => {
            out.push(long);
            out.extend_from_slice(&(n as u16).to_be_bytes());
        }
        _ => {
            out.push(long + 1);
            out.extend_from_slice(&(n as u32).to_be_bytes());
        }
    }
}

/// What a note says, as far as the driver looks.
type Said<'a> = (
    Result<Option<(u32, u32)>, MsgPackError>,
    Result<Option<&'a str>, MsgPackError>,
    Vec<(String, Vec<Result<Arg<'a>, MsgPackError>>)>,
);

/// Everything but the position in the input, as text.
fn fields(k: &KernelMetadata<'_>) -> String {
    let sizes = [
        k.kernarg_segment_size,
        k.kernarg_segment_align,
        k.group_segment_fixed_size,
        k.private_segment_fixed_size,
        k.wavefront_size,
        k.sgpr_count,
        k.vgpr_count,
        k.agpr_count,
        k.sgpr_spill_count,
        k.vgpr_spill_count,
        k.max_flat_workgroup_size,
        k.uniform_work_group_size,
        k.workgroup_processor_mode,
    ];
    let names = (k.name, k.symbol, k.language, k.kernel_name());
    format!("{names:?} {sizes:?} {:?} {:?}", k.uses_dynamic_stack, k.reqd_workgroup_size)
}

fn said(data: &[u8]) -> Said<'_> {
    let m = Metadata { data };
    let mut kernels = Vec::new();
    for k in m.kernels() {
        match k {
            Ok(k) => kernels.push((fields(&k), k.args().collect::<Vec<_>>())),
            Err(e) => kernels.push((e.to_string(), Vec::new())),
        }
    }
    for (_, args) in &kernels {
        // An error ends the list.
        assert!(args.iter().rev().skip(1).all(|a| a.is_ok()));
        for arg in args.iter().flatten() {
            assert!(
                arg.value_kind.size().is_none_or(|s| s <= 8) && !arg.value_kind.name().is_empty() || {
                    matches!(arg.value_kind, amdev_core::program::ValueKind::Other(""))
                }
            );
        }
    }
    // Of no bytes at all, the error is one entry.
    assert!(kernels.len() <= data.len().max(1));
    (m.version(), m.target(), kernels)
}

pub(super) fn run(data: &[u8]) {
    let mut r = Reader::new(data);
    let mut last = 0;
    while r.value().is_ok() {
        assert!(r.pos() > last && r.pos() <= data.len() && r.left() == data.len() - r.pos());
        last = r.pos();
    }
    let before = said(data);
    if Reader::check(data).is_err() {
        return;
    }
    let mut r = Reader::new(data);
    let tree = Tree::read(&mut r).expect("it was checked");
    assert_eq!(r.left(), 0);
    assert!(depth(&tree) <= MAX_DEPTH);
    let mut again = Vec::new();
    tree.emit(&mut again);
    // Only a 32-bit float grows, to twice its length.
    assert!(again.len() <= 2 * data.len());
    assert_eq!(Reader::check(&again), Ok(()));
    assert_eq!(Tree::read(&mut Reader::new(&again)), Ok(tree));
    assert_eq!(said(&again), before);
}

/// Levels of arrays and maps that hold something.
fn depth(tree: &Tree) -> usize {
    match tree {
        Tree::Array(items) if !items.is_empty() => 1 + items.iter().map(depth).max().unwrap_or(0),
        Tree::Map(pairs) if !pairs.is_empty() => {
            1 + pairs.iter().map(|(k, v)| depth(k).max(depth(v))).max().unwrap_or(0)
        }
        _ => 0,
    }
}

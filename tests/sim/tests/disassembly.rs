//! The decoder and disassembler against LLVM's listing of every gfx11 object of the corpus.

mod engine;

use amdev_sim::isa::{Target, decode};

/// One line of a listing: text, address, words.
fn line(l: &str) -> Option<(String, u64, Vec<u32>)> {
    let (text, rest) = l.strip_prefix('\t')?.split_once("//")?;
    let (addr, words) = rest.trim().split_once(':')?;
    let words = words
        .split_whitespace()
        .take_while(|w| w.len() == 8 && !w.starts_with('<'))
        .map(|w| u32::from_str_radix(w, 16).ok())
        .collect::<Option<Vec<_>>>()?;
    Some((text.trim().to_string(), u64::from_str_radix(addr, 16).ok()?, words))
}

#[test]
fn every_gfx11_instruction_of_the_corpus_prints_as_llvm_prints_it() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(engine::data("corpus/disasm")).expect("corpus/disasm") {
        let path = entry.expect("entry").path();
        let name = path.file_name().and_then(|n| n.to_str()).expect("name").to_string();
        if !name.contains("gfx1100") {
            continue;
        }
        // An object file does not say how wide its waves are: the listings take all as wave32.
        let lanes = 32;
        let listing = engine::read(path.with_extension("").as_path());
        for l in String::from_utf8(listing).expect("text").lines() {
            let Some((text, pc, words)) = line(l) else { continue };
            count += 1;
            match decode(Target::Gfx11, pc, &words) {
                Ok(i) => {
                    if usize::from(i.words) != words.len() {
                        wrong.push(format!("{name} {pc:#x} {text}: {} words", i.words));
                    }
                    if i.text(lanes) != text {
                        wrong.push(format!("{name} {pc:#x}\n  llvm {text}\n  ours {}", i.text(lanes)));
                    }
                }
                Err(e) => wrong.push(format!("{name} {text}: {e}")),
            }
        }
    }
    assert!(count > 2000, "only {count} lines were found");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong[..wrong.len().min(40)].join("\n"));
}

//! The cost of a fence for a resource: in memory, and with a mark on disk. `cargo bench -p primacy --bench admit`

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use primacy::FencingToken;
use primacy::core::Fence;
use primacy::fence::DurableFence;

fn admit(criterion: &mut Criterion) {
    let mut fence = Fence::default();
    criterion.bench_function("admit, in memory", |bencher| {
        bencher.iter(|| black_box(&mut fence).admit(black_box(FencingToken(7))));
    });

    // Where builds are kept there is a disk; the temporary directory may be in memory.
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("admit-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory for the mark");
    let fence = DurableFence::open_or_create(&dir.join("mark"), "bench").expect("a new mark");
    fence.admit(FencingToken(1)).expect("the first token");
    criterion.bench_function("admit, durable, the same leader again", |bencher| {
        bencher.iter(|| fence.admit(black_box(FencingToken(1))).expect("the same token"));
    });
    let mut token = 1;
    criterion.bench_function("admit, durable, a new leader each time", |bencher| {
        bencher.iter(|| {
            token += 1;
            fence.admit(FencingToken(token)).expect("a higher token");
        });
    });
    drop(fence);
    std::fs::remove_dir_all(&dir).expect("what was made is removed");
}

criterion_group!(benches, admit);
criterion_main!(benches);

//! The cost of `Leadership::check` on a hot path. `cargo bench -p primacy --bench check`

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use primacy::Elector;

fn check(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let leadership = runtime.block_on(async {
        let elector = Elector::builder().election("bench").connect("memory:bench").await.expect("a store");
        elector.campaign().await.expect("nobody else stands")
    });
    criterion.bench_function("check", |bencher| bencher.iter(|| black_box(&leadership).check()));
    criterion.bench_function("clock::now", |bencher| bencher.iter(primacy::clock::now));
}

criterion_group!(benches, check);
criterion_main!(benches);

//! Rates from made-up counters, and one real sampler.

use super::*;

fn moment(start: Instant, ms: u64, reads: u64, writes: u64, throttled: f64) -> Moment {
    Moment {
        at: start + Duration::from_millis(ms),
        device: Some(Counters {
            reads,
            read_bytes: reads << 20,
            writes,
            written_bytes: writes << 12,
        }),
        cpu: CpuTimes::default(),
        own_throttled: 0.0,
        foreign_throttled: throttled,
    }
}

#[test]
fn rates_are_per_second_and_at_the_end_of_their_interval() {
    let start = Instant::now();
    let moments = [moment(start, 0, 100, 0, 0.0), moment(start, 500, 150, 10, 0.0)];
    let last = moment(start, 2500, 150, 30, 0.25);
    let mut samples = Samples::default();
    samples.add(&moments[0], &moments[0], &moments[1]);
    samples.add(&moments[0], &moments[1], &last);
    samples.conclude(&moments[0], &last, 1.0);
    assert_eq!(samples.series["read_iops"], [(0.5, 100.0), (2.5, 0.0)]);
    assert_eq!(samples.series["write_iops"], [(0.5, 20.0), (2.5, 10.0)]);
    assert_eq!(samples.series["read_mib_per_second"][0], (0.5, 100.0));
    assert!((samples.metrics["write_iops"] - 12.0).abs() < 1e-9);
    assert!((samples.metrics["throttled_seconds"] - 0.25).abs() < 1e-9);
    let kinds: Vec<_> = samples.warnings.iter().map(|warning| warning.kind).collect();
    assert_eq!(kinds, [WarningKind::Throttling, WarningKind::OtherLoad]);
    assert_eq!(samples.warnings[1].text, "other processes used 40 % of a core");
}

#[test]
fn a_sampler_without_device_and_group_samples_the_machine() {
    let begin = Instant::now();
    let sampler = Sampler::every(Duration::from_millis(50), None, None);
    thread::sleep(Duration::from_millis(400));
    let samples = sampler.finish();
    let periods = usize::try_from(begin.elapsed().as_millis() / 50).unwrap();
    let steal = &samples.series["steal_percent"];
    // Fewer when the machine is busy, one at the end.
    assert!((1..=periods + 1).contains(&steal.len()), "{} samples", steal.len());
    assert!(steal.windows(2).all(|pair| pair[0].0 < pair[1].0), "time goes on");
    assert!(!samples.series.contains_key("read_iops"), "there was no device");
    assert!(samples.metrics.contains_key("throttled_seconds"));
}

#[test]
fn a_process_of_ours_is_no_other_load() {
    // A busy child for half a second: were it counted, others would have used as much.
    let before = load::others(std::process::id());
    let busy = "end=$(($(date +%s%N)+500000000)); while [ $(date +%s%N) -lt $end ]; do :; done";
    let mut child = std::process::Command::new("sh").args(["-c", busy]).spawn().unwrap();
    let with_child = load::others(std::process::id());
    let nobody = load::others(u32::MAX);
    assert!(nobody >= with_child, "without a lab, everything is others'");
    child.wait().unwrap();
    assert!(load::others(std::process::id()) >= 0.0 && before >= 0.0);
}

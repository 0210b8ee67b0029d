//! Full-page images of loads that begin after a checkpoint: they are part of what the figures say.

use crate::experiment::{Experiment, Pgbench, Script, Work};
use crate::report::cells::{Cells, spaced};
use crate::run::WARM;
use crate::trial::Phase;

/// A sentence for each workload of pgbench whose trials write them, from what its base counted.
pub(super) fn of(experiment: &Experiment, cells: &Cells<'_>) -> Vec<String> {
    let Some(base) = experiment.arms.first() else { return Vec::new() };
    let sentence = |(name, work): (&String, &Work)| {
        let Work::Pgbench(Pgbench { warm: 0, script, .. }) = work else { return None };
        if *script == Script::SelectOnly {
            return None;
        }
        let mut images = Vec::new();
        for phase in Phase::ALL {
            for cell in cells.cells(phase).into_iter().filter(|cell| cell.workload() == name) {
                let counted = cells.summary(phase, cell, base, "page_images");
                images.extend(counted.map(|summary| summary.mid));
            }
        }
        images.sort_by(f64::total_cmp);
        let (least, most) = (images.first()?, images.last()?);
        let many = match (format!("{least:.1}"), format!("{most:.1}")) {
            (least, most) if least == most => most,
            (least, most) => format!("{least} to {most}"),
        };
        let name = spaced(name);
        (*most > WARM).then(|| {
            format!(
                "{name}: each trial follows a checkpoint, so its transactions write full-page \
                 images into the log, {many} each; a server that has run for long writes fewer"
            )
        })
    };
    experiment.workload.iter().filter_map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Size, read};
    use crate::synthetic::Synthetic;

    #[test]
    fn a_load_that_writes_images_says_so_and_one_that_does_not_is_silent() {
        let text = r#"
            name = "synthetic"
            question = "?"
            engine = "postgresql"
            arms = ["plain", "control"]
            [workload.tpcb_like]
            kind = "pgbench"
            script = "tpcb-like"
            scale = 1
            clients = 1
            jobs = 1
            seconds = 1
            [stop]
            blocks = 3
        "#;
        let said = |images: f64, text: &str| {
            let experiment = read("t", text, Size::Small).unwrap();
            let mut run = Synthetic::new(3);
            run.arm("plain", "tpcb_like", 1.0);
            for trial in &mut run.trials {
                trial.metrics.insert("page_images".into(), images);
            }
            of(&experiment, &Cells::of(&experiment, &run.trials))
        };
        let [one] = &said(1.32, text)[..] else { panic!("{:?}", said(1.32, text)) };
        assert!(one.starts_with("tpcb like: each trial follows a checkpoint"), "{one}");
        assert!(one.contains("images into the log, 1.3 each"), "{one}");
        assert!(said(0.01, text).is_empty());
        assert!(said(1.32, &text.replace("jobs = 1", "jobs = 1\nwarm = 60")).is_empty());
        assert!(said(1.32, &text.replace("tpcb-like", "select-only")).is_empty());
    }
}

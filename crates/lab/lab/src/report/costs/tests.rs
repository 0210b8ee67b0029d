use super::*;
use crate::analysis;
use crate::experiment::{Sql, Work};
use crate::manifest::PlannedArm;
use crate::synthetic::{Synthetic, results, set_controls};
use crate::trial::{Warning, WarningKind};

const ARMS: [&str; 3] = ["plain", "control", "sealed"];

/// Three arms in workload `name`; sealed has this part of plain's speed.
fn cell(run: &mut Synthetic, name: &str, speed: f64) {
    run.arm("plain", name, 1.0).arm("control", name, 1.0).arm("sealed", name, speed);
}

fn costs_of(results: &Results) -> Costs {
    let compare = |p: &Planned| analysis::compare(&p.experiment, &results.trials);
    let compared: Vec<_> = results.manifest.experiments.iter().map(compare).collect();
    Costs::of(results, &compared, &[])
}

fn costs(run: Synthetic) -> Costs {
    costs_of(&results(run, &ARMS))
}

#[test]
fn the_largest_of_the_losses_is_named_with_its_interval() {
    let mut run = Synthetic::new(10);
    cell(&mut run, "small", 0.95);
    cell(&mut run, "large", 0.8);
    cell(&mut run, "none", 1.0);
    let costs = costs(run);
    assert_eq!((costs.cells, costs.losses, costs.same, costs.gains), (3, 2, 1, 0), "{costs:?}");
    let largest = costs.largest_loss.as_ref().unwrap();
    assert!((largest.ratio - 0.8).abs() < 0.02 && largest.interval.0 < largest.ratio);
    let begin = "Sealed by Tidelock, the server had less throughput than unencrypted in 2 of 3 \
                 measured cells; the most was a loss of ";
    assert!(costs.said.starts_with(begin), "{}", costs.said);
    assert!(costs.said.contains("], in synthetic (large). In 1 no difference"), "{}", costs.said);
    let under = format!("under {} %.", phrase::rounded_up(costs.same_under.unwrap()));
    assert!(costs.said.ends_with(&under), "{}", costs.said);
    assert_eq!(costs.caveats, Vec::<String>::new());
}

#[test]
fn where_nothing_is_lost_no_loss_is_named() {
    let mut run = Synthetic::new(10);
    cell(&mut run, "select", 1.0);
    let costs = costs(run);
    assert!(
        costs.said.contains("in the one measured cell that can tell. No difference"),
        "{}",
        costs.said
    );
    assert_eq!(costs.largest_loss, None);
}

#[test]
fn the_bound_of_several_equal_cells_is_the_widest() {
    let mut run = Synthetic::new(10);
    cell(&mut run, "quiet", 1.0);
    run.noise = 0.04;
    cell(&mut run, "noisy", 1.0);
    let results = results(run, &ARMS);
    let compared = analysis::compare(&results.manifest.experiments[0].experiment, &results.trials);
    let under = |name: &str| {
        let cell = Cell(BTreeMap::from([("workload".into(), name.into())]));
        Finding::of(throughput(&compared, &cell).unwrap()).under().unwrap()
    };
    let costs = costs_of(&results);
    assert!(under("quiet") < under("noisy"));
    assert_eq!(costs.same_under, Some(under("noisy")));
    assert!(costs.said.ends_with("% in each."), "{}", costs.said);
}

#[test]
fn a_gain_is_not_hidden_among_losses() {
    let mut run = Synthetic::new(10);
    cell(&mut run, "slower", 0.9);
    cell(&mut run, "faster", 1.2);
    let costs = costs(run);
    assert_eq!((costs.losses, costs.gains), (1, 1));
    assert!(costs.said.contains("In 1 it had more: a gain of "), "{}", costs.said);
}

#[test]
fn without_a_control_nothing_is_said_of_the_cost() {
    let mut run = Synthetic::new(10);
    run.arm("plain", "select", 1.0).arm("sealed", "select", 0.5);
    let costs = costs_of(&results(run, &["plain", "sealed"]));
    assert_eq!((costs.cells, costs.untold, costs.losses), (1, 1, 0));
    assert!(costs.said.starts_with("Of throughput as fast as it goes this"), "{}", costs.said);
}

#[test]
fn four_blocks_say_nothing_and_a_cell_of_them_is_not_counted() {
    let mut run = Synthetic::new(10);
    cell(&mut run, "whole", 0.9);
    cell(&mut run, "cut", 0.5);
    run.trials.retain(|t| t.cell.workload() == "whole" || t.block < 4);
    let costs = costs(run);
    assert!(costs.said.contains("in 1 of 1 measured cell; the most"), "{}", costs.said);
    assert_eq!(costs.largest_loss.unwrap().cell["workload"], "whole");
    assert_eq!(costs.caveats.len(), 1, "{:?}", costs.caveats);
    assert!(costs.caveats[0].starts_with("1 measured cell is not counted"), "{:?}", costs.caveats);
}

#[test]
fn seven_blocks_warnings_and_broken_lines_are_told() {
    let mut run = Synthetic::new(7);
    cell(&mut run, "select", 0.9);
    run.trials[3].warnings =
        vec![Warning { kind: WarningKind::Steal, text: "6 % was taken away".into() }];
    let mut results = results(run, &ARMS);
    results.broken.push(crate::results::Damaged::at(9));
    assert_eq!(
        costs_of(&results).caveats,
        [
            "Fewer than 10 blocks were measured in 1 of 1 measured cell, the least 7",
            "Something may have disturbed 1 of 21 trials; all are kept",
            "1 line of the results is broken, and not used",
        ]
    );
}

#[test]
fn cells_of_an_interrupted_run_are_counted_as_not_measured() {
    let text = "name = 'synthetic'\nquestion = ''\nengine = 'postgresql'\n\
                arms = ['plain', 'control', 'sealed']\n[factors]\nscale = [1, 2, 3]\n\
                [workload.select]\nkind = 'pgbench'\nscript = 'select-only'\nscale = '{scale}'\n\
                clients = 1\njobs = 1\nseconds = 1\n[stop]\nblocks = 10\n";
    let mut run = Synthetic::new(10);
    for arm in ARMS {
        run.at(arm, &[("workload", "select"), ("scale", "1")], 1.0);
    }
    let mut results = results(run, &ARMS);
    results.manifest.experiments[0].experiment =
        crate::experiment::read("synthetic", text, Size::Small).unwrap();
    let caveats = costs_of(&results).caveats;
    let said = |cells: u32| {
        format!(
            "The run is not whole: {cells} of 3 planned cells were not measured in all arms \
             ({cells} of 3 in synthetic)"
        )
    };
    assert_eq!(caveats, [said(2)]);
    // A cell whose sealed server never ran was not measured either, unless none can run here.
    results.trials.retain(|trial| trial.arm != "sealed");
    assert_eq!(costs_of(&results).caveats, [said(3)]);
    results.manifest.experiments[0].arms[2].missing = Some("no library".into());
    assert_eq!(costs_of(&results).caveats[0], said(2));
}

#[test]
fn a_missing_arm_and_a_cipher_without_a_server_are_told_and_not_counted() {
    let mut run = Synthetic::new(10);
    cell(&mut run, "select", 0.9);
    let mut results = results(run, &ARMS);
    results.manifest.experiments[0].experiment.engine = Engine::None;
    let costs = costs_of(&results);
    assert_eq!(costs.cells, 0);
    assert_eq!(costs.caveats, ["synthetic has no server, and is not counted"]);
    results.manifest.experiments[0].arms[2] = PlannedArm {
        missing: Some("no profile".into()),
        ..results.manifest.experiments[0].arms[2].clone()
    };
    assert_eq!(costs_of(&results).caveats, ["In synthetic nothing was sealed: no profile"]);
}

#[test]
fn verdicts_are_counted_in_one_sentence() {
    let counts = [
        (Conclusion::AsPublished, Conclusion::AsPublished.to_string(), 2),
        (Conclusion::Undecided, Conclusion::Undecided.to_string(), 1),
    ];
    assert_eq!(claims(&counts), "3 published claims: 2 as published, 1 not decided.");
    assert_eq!(claims(&[]), "");
}

#[test]
fn noise_that_would_hide_a_tenth_is_no_absence_of_loss() {
    let mut run = Synthetic::new(10);
    run.noise = 0.4;
    cell(&mut run, "noisy", 1.0);
    let costs = costs(run);
    assert_eq!((costs.same, costs.hidden), (0, 1), "{costs:?}");
    let begin = "Of throughput as fast as it goes this run says nothing: in 1 measured cell noise";
    assert!(costs.said.starts_with(begin), "{}", costs.said);
    let mut run = Synthetic::new(10);
    cell(&mut run, "quiet", 1.0);
    run.noise = 0.4;
    cell(&mut run, "noisy", 1.0);
    let costs = self::costs(run);
    assert!(
        costs.said.contains("no loss of throughput in the one measured cell"),
        "{}",
        costs.said
    );
    assert!(costs.caveats[0].starts_with("Not counted: in 1 measured cell noise"), "{costs:?}");
}

#[test]
fn cells_without_the_limits_of_the_experiment_are_told_and_not_counted() {
    let mut run = Synthetic::new(10);
    cell(&mut run, "free", 0.5);
    run.unlimited("free");
    let alone = costs(run);
    assert_eq!((alone.cells, alone.losses, alone.untold), (1, 0, 0), "{alone:?}");
    let said = "Of throughput as fast as it goes this run says nothing: in 1 measured cell a limit of the \
                experiment was not in force.";
    assert_eq!(alone.said, said);
    let mut run = Synthetic::new(10);
    for name in ["free", "open"] {
        cell(&mut run, name, 0.5);
        run.unlimited(name);
    }
    cell(&mut run, "held", 0.8);
    let costs = costs(run);
    assert!(costs.said.contains("in 1 of 1 measured cell; the most was"), "{}", costs.said);
    let end = "Not counted: in 2 measured cells a limit of the experiment was not in force.";
    assert!(costs.said.ends_with(end), "{}", costs.said);
    assert_eq!(costs.largest_loss.unwrap().cell["workload"], "held");
}

/// Four cells of rows in bulk, in which the control has this ratio by CPU time.
fn bulk(control: f64) -> Results {
    let names = ["a", "b", "c", "d"];
    let mut run = Synthetic::new(10);
    names.iter().for_each(|name| cell(&mut run, name, 0.9));
    let mut results = results(run, &ARMS);
    let work = || Sql { setup: "".into(), sql: "".into(), rows: "1".into() };
    let workload = names.map(|name| (name.to_owned(), Work::Sql(work())));
    results.manifest.experiments[0].experiment.workload = workload.into();
    set_controls(&mut results, control);
    results
}

#[test]
fn the_first_sentence_says_no_loss_where_two_equal_servers_differ() {
    let sound = costs_of(&bulk(1.0));
    assert!(sound.said.contains("over all loads: CPU time, loss of "), "{}", sound.said);
    assert!(sound.families.iter().all(|family| family.control.is_some() && !family.void));
    // The control of each cell holds 1; their mean does not.
    let costs = costs_of(&bulk(1.01));
    let said = "over all loads: CPU time, void, since two equal servers differ: the control is ";
    assert!(costs.said.contains(said), "{}", costs.said);
    let cpu = costs.families.iter().find(|family| family.aspect == Aspect::Cpu).unwrap();
    assert_eq!((cpu.kind, cpu.cells, cpu.left_out), (Kind::All, 4, 0), "no cell is void");
    assert!(cpu.void && cpu.words.starts_with("void, since"), "{cpu:?}");
}

#[test]
fn a_miniature_says_that_it_says_nothing_and_nothing_else() {
    let mut results = bulk(1.0);
    results.manifest.size = Size::Miniature;
    let costs = costs_of(&results);
    let said = "This run is a miniature: it shows that everything works, and says nothing about \
                cost.";
    assert_eq!((costs.said.as_str(), costs.by_cells.as_str()), (said, ""));
}

#[test]
fn rows_that_do_not_count_are_among_what_weakens_a_run() {
    let mut results = bulk(1.0);
    results.outside = vec!["2 rows are of an arm that the plan does not have".into()];
    assert!(costs_of(&results).caveats.contains(&results.outside[0]));
}

#[test]
fn a_precise_run_that_was_ended_by_hand_says_so() {
    let mut results = bulk(1.0);
    results.manifest.experiments[0].experiment.stop.control_precision = Some(0.02);
    let says = |results: &Results| {
        let caveats = costs_of(results).caveats;
        caveats.iter().any(|caveat| caveat == crate::phrase::ENDED_BY_HAND)
    };
    assert!(!says(&results));
    results.finished = false;
    assert!(says(&results));
    // The number of blocks of any other run was fixed before it began.
    results.manifest.experiments[0].experiment.stop.control_precision = None;
    assert!(!says(&results));
}

//! Phase 3: what each meter owes for each month: charges, a fee for the days, tax.

use super::Phase;
use super::crew::Tally;
use super::error::Result;
use super::store::{Charge, Step, Store, Sum};

/// Charges so many `meters` from `first` on, in one transaction.
pub(super) fn charge(
    store: &mut impl Store,
    first: i64,
    meters: u32,
    tally: &Tally<'_>,
) -> Result<()> {
    let last = first + i64::from(meters) - 1;
    let place = || format!("meters {first} to {last}");
    let sums = store.sums(first, last).map_err(|t| t.at(Phase::Charge, place()))?;
    let records: i64 = sums.iter().map(|sum| sum.records).sum();
    let charges: Vec<Charge> = sums.into_iter().map(bill).collect();
    let step = Step { file: 0, first, last, records };
    store.charged(&step, &charges).map_err(|t| t.at(Phase::Charge, place()))?;
    tally.add(usize::try_from(records).unwrap_or(0), 0, charges.len());
    Ok(())
}

/// What is in dispute is not charged.
fn bill(sum: Sum) -> Charge {
    let days = i64::from(sum.month.month().length(sum.month.year()));
    let fee = days * FEE_A_DAY;
    let net = sum.charge - sum.disputed.max(0) + fee;
    let tax = (net * TAX_PERCENT + 50).div_euclid(100);
    Charge { sum, fee, tax, total: net + tax }
}

/// Hundredths of a cent.
const FEE_A_DAY: i64 = 8_250;
const TAX_PERCENT: i64 = 10;

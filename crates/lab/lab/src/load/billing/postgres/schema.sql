CREATE SCHEMA IF NOT EXISTS billing;

CREATE TABLE IF NOT EXISTS billing.tariff (
    tariff text PRIMARY KEY,
    price bigint NOT NULL               -- hundredths of a cent a kWh
);

CREATE TABLE IF NOT EXISTS billing.meter (
    meter text PRIMARY KEY,
    number bigint NOT NULL UNIQUE,
    operator text NOT NULL,
    tariff text NOT NULL REFERENCES billing.tariff
);

CREATE TABLE IF NOT EXISTS billing.file (
    file integer PRIMARY KEY,
    name text NOT NULL UNIQUE,
    bytes bigint NOT NULL,
    finished boolean NOT NULL DEFAULT false
);

-- The ledger: one row for each transaction, written by it.
CREATE TABLE IF NOT EXISTS billing.step (
    phase smallint NOT NULL,
    file integer NOT NULL,              -- 0 in phase 3
    first bigint NOT NULL,              -- lines; numbers of meters in phase 3
    last bigint NOT NULL,
    next_offset bigint NOT NULL,        -- where the line behind the last one starts
    records bigint NOT NULL,
    PRIMARY KEY (phase, file, first)
);

CREATE TABLE IF NOT EXISTS billing.record (
    file integer NOT NULL,
    line bigint NOT NULL,
    operator text NOT NULL,
    meter text NOT NULL,
    date date NOT NULL,
    half_hour smallint NOT NULL,
    tariff text NOT NULL,
    quantity bigint NOT NULL,           -- Wh
    charge bigint NOT NULL,             -- hundredths of a cent
    PRIMARY KEY (file, line),
    UNIQUE (meter, date, half_hour)
);

CREATE TABLE IF NOT EXISTS billing.rejected (
    file integer NOT NULL,
    line bigint NOT NULL,
    reason text NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (file, line)
);

CREATE TABLE IF NOT EXISTS billing.finding (
    file integer NOT NULL,
    line bigint NOT NULL,
    kind text NOT NULL,
    expected bigint NOT NULL,
    found bigint NOT NULL,
    PRIMARY KEY (file, line, kind)
);

CREATE TABLE IF NOT EXISTS billing.charge (
    meter text NOT NULL REFERENCES billing.meter,
    month date NOT NULL,
    operator text NOT NULL,
    records bigint NOT NULL,
    quantity bigint NOT NULL,
    charge bigint NOT NULL,
    disputed bigint NOT NULL,           -- charged above what phase 2 calculated
    fee bigint NOT NULL,
    tax bigint NOT NULL,
    total bigint NOT NULL,
    PRIMARY KEY (meter, month)
);

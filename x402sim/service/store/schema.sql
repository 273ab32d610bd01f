-- The tables of one service's database, and their indexes. Every change of them is a new
-- SCHEMA_VERSION (database.py).
-- The states of payments are those of protocol/states.py; their status is what payers see of them.

CREATE TABLE payments(
    -- a number is never used again: a request may still hold that of a record that is deleted
    attempt INTEGER PRIMARY KEY AUTOINCREMENT, payment_id TEXT NOT NULL, tx_hash TEXT, from_address TEXT NOT NULL,
    to_address TEXT NOT NULL, amount TEXT NOT NULL, resource_url TEXT NOT NULL,
    state TEXT NOT NULL
        CHECK (state IN ('not submitted', 'in flight', 'maybe submitted', 'settled', 'failed')),
    status TEXT AS (iif(state IN ('settled', 'failed'), state, 'pending')),
    block_number INTEGER, timestamp INTEGER NOT NULL,
    header TEXT NOT NULL, payer BLOB, nonce BLOB, valid_before_s INTEGER,
    duration INTEGER NOT NULL, is_authorized INTEGER NOT NULL,
    nonce_confirmed_unused INTEGER NOT NULL,
    failed_at INTEGER, is_deep INTEGER NOT NULL DEFAULT 0,
    offered_id TEXT,
    look_s REAL NOT NULL DEFAULT 0, wait_s REAL NOT NULL DEFAULT 0,
    CHECK (status != 'settled' OR tx_hash IS NOT NULL));
CREATE INDEX unindexed ON payments(timestamp)
    WHERE block_number IS NULL AND status = 'settled';
CREATE INDEX shallow ON payments(timestamp)
    WHERE block_number IS NOT NULL AND status = 'settled' AND NOT is_deep;
CREATE INDEX shallow_failures ON payments(timestamp)
    WHERE status = 'failed' AND NOT is_deep;
CREATE INDEX unresolved ON payments(state != 'not submitted', look_s, timestamp)
    WHERE status = 'pending';
CREATE INDEX attempts ON payments(payment_id);
CREATE INDEX offered ON payments(offered_id) WHERE offered_id IS NOT NULL;
CREATE UNIQUE INDEX paid ON payments(payment_id) WHERE status = 'settled';
CREATE INDEX by_transaction ON payments(tx_hash)
    WHERE status = 'settled';
CREATE UNIQUE INDEX claims ON payments(payer, nonce)
    WHERE status != 'failed' AND is_authorized;
CREATE TABLE sessions(
    session_id TEXT PRIMARY KEY, payment_id TEXT NOT NULL UNIQUE,
    payer TEXT NOT NULL, deposited INTEGER NOT NULL CHECK (deposited > 0),
    released INTEGER NOT NULL DEFAULT 0 CHECK (released BETWEEN 0 AND deposited),
    status TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'expired')),
    is_canceled INTEGER NOT NULL DEFAULT 0,
    created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL);
CREATE INDEX expiring ON sessions(expires_ms) WHERE status = 'active';
CREATE TABLE debits(
    debit_id INTEGER PRIMARY KEY, session_id TEXT NOT NULL REFERENCES sessions,
    amount INTEGER NOT NULL CHECK (amount > 0), resource_url TEXT NOT NULL,
    timestamp INTEGER NOT NULL);
CREATE TABLE refunds(
    session_id TEXT NOT NULL REFERENCES sessions, part INTEGER NOT NULL DEFAULT 0,
    to_address TEXT NOT NULL, amount INTEGER NOT NULL CHECK (amount > 0), sent INTEGER CHECK (sent >= 0),
    status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'settled')),
    tx_hash TEXT, timestamp INTEGER NOT NULL, is_deep INTEGER NOT NULL DEFAULT 0,
    look_s REAL NOT NULL DEFAULT 0, wait_s REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (session_id, part), CHECK (status != 'settled' OR sent IS NOT NULL));
CREATE INDEX refunds_due ON refunds(look_s, timestamp, session_id, part)
    WHERE status = 'pending';
CREATE INDEX shallow_refunds ON refunds(timestamp)
    WHERE status = 'settled' AND NOT is_deep;
CREATE TABLE secrets(name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE reputation(resource_url TEXT PRIMARY KEY, payments INTEGER NOT NULL);
CREATE TABLE answers(
    identifier TEXT PRIMARY KEY, payment_id TEXT NOT NULL UNIQUE, digest BLOB NOT NULL,
    answer BLOB, until_s INTEGER NOT NULL);
CREATE INDEX answers_ending ON answers(until_s);
-- payments in `upto`; amounts in base units. `answer` is kept until the payer has it.
CREATE TABLE usages(
    payment_id TEXT PRIMARY KEY, payment BLOB NOT NULL, resource_url TEXT NOT NULL,
    maximum INTEGER NOT NULL, until_s INTEGER NOT NULL, since_block INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'working'
        CHECK (state IN ('working', 'owed', 'settled', 'failed')),
    used INTEGER CHECK (used BETWEEN 1 AND maximum), tx_hash TEXT, answer BLOB,
    is_deep INTEGER NOT NULL DEFAULT 0, looks INTEGER NOT NULL DEFAULT 0,
    CHECK (state = 'working' OR used IS NOT NULL), CHECK (state != 'settled' OR tx_hash IS NOT NULL));
CREATE INDEX usages_settled ON usages(tx_hash) WHERE state = 'settled';
CREATE INDEX usages_due ON usages(looks) WHERE state != 'failed' AND NOT is_deep;

-- Counts of the payments that are in a block, which the database itself keeps up to date: counting
-- them anew took longer with every payment.
CREATE TABLE served(payment_id TEXT PRIMARY KEY, resource_url TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE matched(resource_url TEXT PRIMARY KEY, payments INTEGER NOT NULL,
    served INTEGER NOT NULL);
CREATE TRIGGER payment_matched AFTER UPDATE OF state, block_number ON payments
    WHEN (new.status = 'settled' AND new.block_number IS NOT NULL)
    AND NOT (old.status = 'settled' AND old.block_number IS NOT NULL)
    BEGIN INSERT INTO matched VALUES (new.resource_url, 1,
        EXISTS(SELECT 1 FROM served WHERE payment_id = new.payment_id))
    ON CONFLICT(resource_url) DO UPDATE
    SET payments = payments + 1, served = served + excluded.served; END;
CREATE TRIGGER payment_unmatched AFTER UPDATE OF state, block_number ON payments
    WHEN (old.status = 'settled' AND old.block_number IS NOT NULL)
    AND NOT (new.status = 'settled' AND new.block_number IS NOT NULL)
    BEGIN UPDATE matched SET payments = payments - 1,
        served = served - EXISTS(SELECT 1 FROM served WHERE payment_id = old.payment_id)
    WHERE resource_url = old.resource_url; END;
CREATE TRIGGER payment_deleted AFTER DELETE ON payments
    WHEN old.status = 'settled' AND old.block_number IS NOT NULL
    BEGIN UPDATE matched SET payments = payments - 1,
        served = served - EXISTS(SELECT 1 FROM served WHERE payment_id = old.payment_id)
    WHERE resource_url = old.resource_url; END;
CREATE TRIGGER payment_served AFTER INSERT ON served
    WHEN EXISTS(SELECT 1 FROM payments WHERE payment_id = new.payment_id
        AND status = 'settled' AND block_number IS NOT NULL)
    BEGIN UPDATE matched SET served = served + 1 WHERE resource_url = new.resource_url; END;

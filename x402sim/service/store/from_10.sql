-- Makes the tables of version 11 of those of version 10: a session may have several refunds.
ALTER TABLE refunds RENAME TO refunds_10;
DROP INDEX refunds_due;
DROP INDEX shallow_refunds;
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
INSERT INTO refunds(session_id, to_address, amount, sent, status, tx_hash, timestamp, is_deep, look_s, wait_s)
    SELECT session_id, to_address, amount, iif(status = 'settled', amount, NULL), status, tx_hash, timestamp,
        is_deep, look_s, wait_s FROM refunds_10;
DROP TABLE refunds_10;

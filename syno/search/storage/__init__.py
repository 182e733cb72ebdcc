"""The storage of a study: trials in a database or a journal file, shared by any number of workers.

What is stored. A study has its settings (attribute "syno"), the numbers of the trials that do not count ("withdrawn ..."), and
whether no operator is left to propose ("exhausted"). A trial is created with all data known before its evaluation: the
operator's text, fingerprint and path, the attempt, the worker, and the events that its policy knew (`records.attributes`). Its
result is added atomically when the evaluation ends (`records.Result`). Both parts carry a checksum, which is verified when the
trial is read.

Where. Optuna's storages: SQLite, a database server, memory, or a journal. A journal is a text file that grows: each line is one
operation of Optuna as JSON, such as "create a trial", with a checksum under a key that Optuna ignores (`journal`).

After a crash. A half-written last line is ignored, and the next writer cuts it off. Damaged journals and SQLite files are
refused. A trial whose worker died is evaluated again by another worker.

Who may write. Any worker may append to a journal while it holds the journal's lock. A worker holds a lease on the trial that it
evaluates, and renews it in a thread; when the lease has expired, other workers end the trial (`leases`). The first to end a
trial wins. Trials are numbered in the order of their creation, by which workers agree on who evaluates an operator
(`syno.search.trials`).
"""

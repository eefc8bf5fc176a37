// Package e2e plays the main story on real nodes with faults: wrong and altered
// sticks, a full disk, a budget that cannot be met, kills of every component.
//
// `make test` plays one story with one seeded kill; `make e2e` (REFIT_E2E=1)
// plays the whole table and writes its results, with date and commit, to
// results/. Both need root on Linux; otherwise they are skipped and say so.
package e2e

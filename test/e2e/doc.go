// Package e2e runs the main story on real nodes with faults: wrong, unsigned and altered
// media, a full disk, a budget that cannot be met, and kills of every component. It also
// has a kubelet that does not start, an API server that is unavailable, a step that hangs,
// and a node that reboots into the old version. `refit tags check` predicts what
// containers run after crashes, reboots, moved tags and a stopped registry; the tests
// compare this with what kubelets then do.
//
// A whole site loses its power, and a node loses what it had not written. Programs other
// than refit then check the images that its runtime calls present.
//
// `make test` runs one story with one seeded kill. `make e2e` (REFIT_E2E=1) runs the whole
// tables, clusters of other shapes, all updaters, and the commands of
// docs/tutorial/first-steps.md and of how-to pages (testdata/howtos.yaml). It writes the
// results, with date and commit, to results/. All need root on Linux; otherwise they are skipped and say so.
package e2e

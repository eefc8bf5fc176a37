// Package e2e plays the main story on real nodes with faults: wrong, unsigned
// and altered sticks, a full disk, a budget that cannot be met, kills of every
// component, a kubelet that does not come up, an API server that is away, a step
// that hangs, a node that comes back on the old version. Situations of containers
// (crashes, reboots, tags that moved, a registry that is stopped) are foretold by
// `refit tags check` first, and compared with what kubelets then do.
//
// A whole site loses its power, and a node loses what it had not written; what its
// runtime calls present then is judged by programs that are not ours.
//
// `make test` plays one story with one seeded kill; `make e2e` (REFIT_E2E=1)
// plays the whole tables, clusters of other shapes, every updater beside those that
// move Kubernetes, and the commands of
// docs/tutorial/first-steps.md, and writes what came of it, with date and commit, to
// results/. All need root on Linux; otherwise they are skipped and say so.
package e2e

// Package clusterfacts reads from a cluster what the gate and the drain ask about: pods
// with the budgets that protect them, webhooks and where their backends run,
// APIs in use that will go, image pull settings.
//
// Promise: it reads and writes nothing. What cannot be read is an error with
// what was asked, never an empty answer.
//
// Input: a client that reads. Output: values of packages gate and drain.
// Callers: controller/clusterupdates, controller/evict, `refit explain node/NAME`.
package clusterfacts

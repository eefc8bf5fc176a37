// Package clusterfacts reads the facts for the gate and the drain from a cluster: pods
// with their budgets, webhooks with their backends, deprecated APIs in use, image pull
// settings.
//
// Promise: it reads and writes nothing. What cannot be read is an error with
// what was asked, never an empty answer.
//
// Input: a client that reads. Output: values of packages gate and drain.
// Callers: controller/clusterupdates, controller/evict, `refit explain node/NAME`.
package clusterfacts

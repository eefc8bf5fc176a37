// Package notifications sends messages about ClusterUpdates to webhooks and to Alertmanager:
// an update started, needs a person, failed, or is done.
//
// Promise: which messages are due follows from the status of the updates alone, so a restart
// loses none. A message has the same ID in every repeat, and status.notifications records which
// webhooks got it: a restart repeats only what was not recorded yet. A receiver that does not
// answer delays no reconciler and no other receiver: each has its own queue, bounded, with
// growing and random pauses. Redirects are refused. URLs, keys and tokens are in no log.
//
// Alertmanager gets the state instead: all current alerts every minute, each with an end that
// passes if they stop. It needs no record.
//
// Inputs: a file of receivers and the files that it names, ClusterUpdates of the cache. Outputs:
// requests, status.notifications, the metric refit_notifications_total. Caller: the controller.
package notifications

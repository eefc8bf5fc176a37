// Package osprepull has the nodes of a pool hold the OS image that they are to boot, as
// they hold any other image, and counts those that do.
//
// Promise: nothing is drained and nothing restarts here. What a bundle brings is not
// fetched: no registry is asked for it. A node that has the image booted or staged
// counts, whatever its container runtime holds. Credentials stay where kubelets read
// them: refit names the Secret and hands none out. Counted is what agents say of the
// list they have, never of an older one.
//
// Inputs: pools with their image, nodes, what their agents report, hold lists. Outputs:
// PinnedImageSets os-image-POOL, Jobs of tracks/fetching, counts. Caller:
// internal/controller/osimages.
package osprepull

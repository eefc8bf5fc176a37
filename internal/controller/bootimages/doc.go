// Package bootimages keeps the boot images of machine managers fresh, as the
// BootImagePolicies say, and keeps the inventory: one MachineSource for each.
//
// Promise: what is to be done is decided by internal/bootimage; here it is
// gathered, written and recorded. At most three writes per machine manager and
// change (the clone of a template, the reference to it, the record), none if
// nothing differs. All that is remembered is in the MachineSources: a restart at
// any line goes on where it was, and nothing that refit did not make is deleted.
// Kinds that the cluster does not serve, or that refit may not see, are said and
// stop nothing else.
//
// Inputs: BootImagePolicies, BootImageStreams, MachineSources, Nodes and what
// their agents say, the objects of machine kinds (read live, every half minute).
// Outputs: templates, patches, MachineSources, status. Caller: the controller.
//
// Files: controller.go the loop, gather.go what is looked at, candidate.go one
// machine manager, write.go and collect.go what is written and taken away,
// record.go the MachineSources, skew.go which versions their images block (package sourcestatus),
// image_choice.go and image_region.go the image of a machine manager, summary.go the
// policies, metrics.go their numbers.
package bootimages

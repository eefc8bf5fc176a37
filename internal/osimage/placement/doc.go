// Package placement says where everything of a node's configuration goes: into
// the OS image, and there to which path, or to the node by its agent.
//
// Promise: pure; the same configuration gives the same entries in the same order.
// Everything of the configuration has an Item with the rule that placed it. What
// looks like a secret, what not everybody may read, and what an image's content is
// not applied to on an update (/var, /home) is never in an image. What cannot be
// at all (/usr/etc, a secret below /usr) is a verdict, and then there is no image.
//
// Input: a merged model.NodeConfig. Outputs: the entries of a layer, the
// configuration that a node gets when it has booted the image, stale copies that
// would hide the image's. Callers: internal/controller/osimages, the command refit
// image build. Example:
//
//	p, verdicts := placement.Place(config)
package placement

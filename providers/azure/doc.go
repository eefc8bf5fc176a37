// Package azure asks Azure Resource Manager about images: offers of the marketplace, versions of
// galleries of one's own or of the community, and managed images.
//
// Promise: an image exists if Azure shows its version to this subscription in this location, and
// machines can start from it. It is neither deprecated nor incomplete, and its gallery has a copy in
// the location. Only an answer of Azure that it does not know the image means that it does not
// exist; a refused login or another error is no answer. The package reads only.
//
// Inputs: subscription and location, credentials as Azure's SDK finds them. Output: cloud.Answer.
// Caller: cmd/refit-providers.
package azure

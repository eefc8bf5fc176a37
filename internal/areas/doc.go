// Package areas lists the product areas that an installation may leave out, with their kinds,
// the controller's access rights for them, other objects, and controllers.
//
// Promise: this is the only list. Manifests (config), the controller and the CLI follow it.
// What several areas need is left out only when all of them are. Inputs: names as users write
// them. Output: values.
package areas

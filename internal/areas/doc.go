// Package areas lists the product areas that an installation may leave out, and what belongs to
// each: its kinds, the controller's rights for it, its other objects and its controllers.
//
// Promise: this is the only list. Manifests (config), the controller and the CLI follow it; what
// belongs to several areas goes when all of them are left out. Inputs: names as the user writes
// them. Output: values.
package areas

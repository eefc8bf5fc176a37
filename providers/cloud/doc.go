// Package cloud asks clouds about the boot images of a stream, and uploads files to them.
//
// Promise: an image counts as there only if its cloud reported it in this pass, or in an earlier
// one while the cloud cannot be reached; the list then has the time. A cloud that was never
// reached has nothing. An upload starts only for a site with upload set, and only with a file
// that has the stream's SHA-256. Machines see an image under its name only after every byte was
// sent and compared with what the cloud reports. Resolve and Upload change and delete nothing
// that refit did not upload.
//
// After a crash at any line the next pass continues. A download resumes at its last byte. No
// API of vSphere, Glance or Nutanix resumes a disk, so an interrupted disk starts anew; refit
// removes the incomplete one first. What is complete is not sent again.
//
// Inputs: a stream (CoreOS stream metadata or refit's list), sites, files. Output: refit's list
// (bootstream.EncodeGeneric), which a BootImageStream reads from a URL, a bundle or an artifact:
// names of the images in their clouds, why one is unavailable, notices. Callers:
// cmd/refit-providers. Implementations: vsphere, openstack, nutanix, aws, gcp.
package cloud

package openstack

import (
	"context"
	"crypto/md5"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/imagedata"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"

	"github.com/refit-dev/refit/providers/cloud"
)

// Upload makes an image from a file.
func (c *Cloud) Upload(ctx context.Context, w cloud.Wanted, p cloud.Payload) error {
	s, err := c.connect(ctx)
	if err != nil {
		return err
	}
	there, err := named(ctx, s, w.Name)
	if err != nil {
		return err
	}
	for _, i := range there {
		if !incomplete(i) {
			return occupied(there, w)
		}
		if err := images.Delete(ctx, s, i.ID).ExtractErr(); err != nil && !gophercloud.ResponseCodeIs(err, 404) {
			return fmt.Errorf("delete the incomplete upload %s: %w", i.ID, err)
		}
	}
	i, err := images.Create(ctx, s, c.newImage(w)).Extract()
	if err != nil {
		return fmt.Errorf("create image %s: %w", w.Name, err)
	}
	if err := send(ctx, s, i.ID, p); err != nil {
		discard(ctx, s, i.ID)
		return fmt.Errorf("image %s: %w", i.ID, err)
	}
	mark := images.UpdateOpts{images.UpdateImageProperty{Op: images.AddOp, Name: propertyVerified, Value: verified}}
	if _, err := images.Update(ctx, s, i.ID, mark).Extract(); err != nil {
		return fmt.Errorf("mark image %s as verified: %w", i.ID, err)
	}
	return nil
}

// discard deletes a failed upload, so that nothing starts from it. The next upload does the same.
func discard(ctx context.Context, s *gophercloud.ServiceClient, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_ = images.Delete(ctx, s, id)
}

// occupied returns why an image cannot have its name, nil if it is there already.
func occupied(there []images.Image, w cloud.Wanted) error {
	if a := describe(there, w); a.Problem != "" {
		return errors.New(a.Problem)
	}
	return nil
}

// architectures as Glance's common image properties spell them.
var architectures = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

func (c *Cloud) newImage(w cloud.Wanted) images.CreateOpts {
	format, architecture := c.Config.DiskFormat, w.Key.Architecture
	if format == "" {
		format = "qcow2"
	}
	if a, ok := architectures[architecture]; ok {
		architecture = a
	}
	private := images.ImageVisibilityPrivate
	return images.CreateOpts{Name: w.Name, DiskFormat: format, ContainerFormat: "bare", Visibility: &private,
		Properties: map[string]string{propertySum: w.Sum(), "architecture": architecture, "os_version": w.Version}}
}

// send sends the bytes and compares what Glance reports of them.
func send(ctx context.Context, s *gophercloud.ServiceClient, id string, p cloud.Payload) error {
	r, err := p.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	long, short := sha512.New(), md5.New()
	// Only a reader: the client would otherwise rewind it and send it twice.
	if err := imagedata.Upload(ctx, s, id, struct{ io.Reader }{io.TeeReader(r, io.MultiWriter(long, short))}).ExtractErr(); err != nil {
		return fmt.Errorf("send %s: %w", p.Path, err)
	}
	i, err := images.Get(ctx, s, id).Extract()
	if err != nil {
		return fmt.Errorf("ask for its digest: %w", err)
	}
	return compare(*i, p, long, short)
}

// compare compares an image with the bytes that were sent. Glance has a SHA-512 since the
// release Rocky; older ones have an MD5 only, which finds damage and no attack.
func compare(i images.Image, p cloud.Payload, long, short hash.Hash) error {
	if i.Status != images.ImageStatusActive {
		return fmt.Errorf("it is in status %s after the upload", i.Status)
	}
	if i.SizeBytes != p.Size {
		return fmt.Errorf("it has %d bytes, the file has %d", i.SizeBytes, p.Size)
	}
	algorithm, got := property(i, "os_hash_algo"), property(i, "os_hash_value")
	var want string
	switch algorithm {
	case "sha512":
		want = hexSum(long)
	case "sha256":
		want = p.SHA256
	default:
		algorithm, got, want = "md5", i.Checksum, hexSum(short)
	}
	if got != want {
		return fmt.Errorf("other bytes received by Glance: its %s is %q, the file has %s", algorithm, got, want)
	}
	return nil
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

package agent

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/coldstart"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/model"
)

// maxWithout is how many images without a copy the status names.
const maxWithout = 16

// coldStart returns which images this node has a copy of, so that it can start without a
// registry, and the last check of them.
func (l *imageLoop) coldStart(w *desired.State) *v1alpha1.ColdStart {
	c := &v1alpha1.ColdStart{}
	blobs := map[string]bool{}
	for _, img := range w.Pins.Images {
		if img.Registry {
			continue
		}
		shelf := l.library.Shelf(img.Bundle)
		if shelf == nil {
			c.Without = append(c.Without, img.Name)
			continue
		}
		if _, ok := shelf.Target(img, platform()); !ok {
			c.Without = append(c.Without, img.Name)
			continue
		}
		c.Copies++
		one := model.PinSet{Images: []model.PinSetImage{img}}
		for _, b := range shelf.Wanted(one, platform()).Blobs {
			if blob := shelf.Bundle().Metadata.Blobs[b]; !blobs[blob.Digest] {
				blobs[blob.Digest] = true
				c.CopyBytes += blob.Size
			}
		}
	}
	c.Without = c.Without[:min(len(c.Without), maxWithout)]
	if r, err := coldstart.ReadReport(l.conf); err == nil {
		at := metav1.NewTime(r.At.Truncate(time.Second))
		c.CheckedBoot, c.CheckedAt, c.CheckSeconds, c.Unclean, c.Drill = r.BootID, &at, int32(r.Seconds+0.5), r.Unclean, r.Drill
		c.Compared, c.Restored, c.Missing = int32(r.Files), int32(len(r.Restored)), int32(len(r.Missing))
	}
	return c
}

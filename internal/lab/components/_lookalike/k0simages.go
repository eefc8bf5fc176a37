package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Labels of k0s, seen with v1.36.3+k0s.2: an image that it imported is pinned until none of its
// archives is left.
const (
	pinnedLabel  = "io.cri-containerd.pinned"
	sourcesLabel = "io.k0sproject.ocibundle-paths"
)

// quiet is how long k0s waits after the last change of its directory of images.
const quiet = 10 * time.Second

// sources are archives by path, with the time of their last change.
type sources map[string]time.Time

// archives are those in the directory of images now.
func archives() sources {
	found := sources{}
	paths, _ := filepath.Glob(at.images + "/*.tar")
	for _, p := range paths {
		if st, err := os.Stat(p); err == nil {
			found[p] = st.ModTime()
		}
	}
	return found
}

// left are those that are there unchanged.
func (s sources) left() sources {
	now := archives()
	out := maps.Clone(s)
	maps.DeleteFunc(out, func(path string, changed time.Time) bool { return !now[path].Equal(changed) })
	return out
}

// keepImages imports the archives before it returns, so that no pod asks a registry for them.
// It imports again after each change of the directory.
func (f *family) keepImages() {
	imported, last := sources{}, archives()
	f.importAndPin(imported)
	f.alive.Go(func() { f.watchImages(imported, last) })
}

func (f *family) watchImages(imported, last sources) {
	var changed time.Time
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-time.After(time.Second):
		}
		if now := archives(); !maps.EqualFunc(now, last, time.Time.Equal) {
			last, changed = now, time.Now()
		}
		if !changed.IsZero() && time.Since(changed) > quiet {
			changed = time.Time{}
			f.importAndPin(imported)
		}
	}
}

// importAndPin imports what is new, pins it, and removes the pins whose archives are gone. A
// damaged archive is logged and passed over until the directory changes.
func (f *family) importAndPin(imported sources) {
	now := archives()
	for _, path := range slices.Sorted(maps.Keys(now)) {
		if imported[path].Equal(now[path]) {
			continue
		}
		if err := f.importPinned(path, now[path]); err != nil {
			fmt.Fprintf(os.Stderr, "image archive passed over: %v\n", err)
			continue
		}
		imported[path] = now[path]
	}
	if err := f.unpin(); err != nil {
		fmt.Fprintf(os.Stderr, "failed to unpin images: %v\n", err)
	}
}

func (f *family) ctr(args ...string) (string, error) {
	return f.output("ctr", append([]string{"--address", at.socket, "--namespace", "k8s.io", "images"}, args...)...)
}

// importPinned pins the record of each name in the archive. The runtime's records of the same
// image by digest get no pin.
func (f *family) importPinned(path string, changed time.Time) error {
	names, err := imagesIn(path)
	if err != nil {
		return err
	}
	if _, err := f.ctr("import", "--local", path); err != nil {
		return err
	}
	known, err := f.imported()
	if err != nil {
		return err
	}
	for _, n := range names {
		from := known[n].left()
		if from == nil {
			from = sources{}
		}
		from[path] = changed
		if err := f.label(n, "pinned", from); err != nil {
			return err
		}
	}
	return nil
}

// label sets both labels of an image. Without a value they go.
func (f *family) label(name, pin string, from sources) error {
	value := ""
	if len(from) > 0 {
		text, err := json.Marshal(from)
		if err != nil {
			return err
		}
		value = string(text)
	}
	_, err := f.ctr("label", name, pinnedLabel+"="+pin, sourcesLabel+"="+value)
	return err
}

// unpin removes the pin of each image whose archives are all gone, even if another program wants it.
func (f *family) unpin() error {
	known, err := f.imported()
	if err != nil {
		return err
	}
	for name, from := range known {
		if len(from.left()) > 0 {
			continue
		}
		if err := f.label(name, "", nil); err != nil {
			return err
		}
	}
	return nil
}

// imported are the images that have a label of k0s, with their archives.
func (f *family) imported() (map[string]sources, error) {
	list, err := f.ctr("list")
	if err != nil {
		return nil, err
	}
	out := map[string]sources{}
	for line := range strings.Lines(list) {
		name, _, _ := strings.Cut(line, " ")
		_, value, found := strings.Cut(line, sourcesLabel+"=")
		if !found {
			continue
		}
		from := sources{}
		if err := json.NewDecoder(strings.NewReader(value)).Decode(&from); err != nil {
			return nil, fmt.Errorf("label of %s: %w", name, err)
		}
		out[name] = from
	}
	return out, nil
}

// imagesIn returns the names in an archive's index.
func imagesIn(path string) ([]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for r := tar.NewReader(file); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s has no index.json", path)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if filepath.Clean(h.Name) == "index.json" {
			return namesOf(r)
		}
	}
}

func namesOf(index io.Reader) ([]string, error) {
	var all struct {
		Manifests []struct{ Annotations map[string]string }
	}
	if err := json.NewDecoder(index).Decode(&all); err != nil {
		return nil, err
	}
	var names []string
	for _, m := range all.Manifests {
		if n := m.Annotations["io.containerd.image.name"]; n != "" {
			names = append(names, n)
		}
	}
	return names, nil
}

package cri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// callTime is how long one question may take, the kubelet's limit: a runtime that
// hangs is an error, not a wait without end.
const callTime = 2 * time.Minute

// maxMessage is the largest answer in bytes; the kubelet's limit.
const maxMessage = 16 << 20

// Client speaks to one runtime.
type Client struct {
	conn    *grpc.ClientConn
	images  runtime.ImageServiceClient
	runtime runtime.RuntimeServiceClient
	limit   time.Duration
}

// Open prepares a client for a socket; it connects when it is first used, and
// again whenever the runtime was restarted.
func Open(socket string) (*Client, error) {
	c := &Client{limit: callTime}
	conn, err := grpc.NewClient("unix://"+strings.TrimPrefix(socket, "unix://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(c.inTime),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("CRI socket %s: %w", socket, err)
	}
	c.conn, c.images, c.runtime = conn, runtime.NewImageServiceClient(conn), runtime.NewRuntimeServiceClient(conn)
	return c, nil
}

// inTime bounds every call.
func (c *Client) inTime(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	limit := c.limit
	if l, ok := ctx.Value(longCall{}).(time.Duration); ok {
		limit = l
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return call(ctx, method, req, reply, cc, opts...)
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Version is the runtime's name and version.
func (c *Client) Version(ctx context.Context) (name, version string, err error) {
	v, err := c.runtime.Version(ctx, &runtime.VersionRequest{})
	if err != nil {
		return "", "", fmt.Errorf("CRI version: %w", err)
	}
	return v.GetRuntimeName(), v.GetRuntimeVersion(), nil
}

// Ready says why the runtime does not take pods, nil if it does. Its network may
// be missing: that is for others to say.
func (c *Client) Ready(ctx context.Context) error {
	r, err := c.runtime.Status(ctx, &runtime.StatusRequest{})
	if err != nil {
		return errors.New("the container runtime does not answer")
	}
	for _, cond := range r.GetStatus().GetConditions() {
		if cond.GetType() == runtime.RuntimeReady && !cond.GetStatus() {
			return fmt.Errorf("the container runtime is not ready: %s", cond.GetReason())
		}
	}
	return nil
}

// Image is one image as the runtime reports it.
type Image struct {
	// ID is the digest of its configuration.
	ID string
	// Tags are names with tag, Digests names with digest.
	Tags, Digests []string
	Pinned        bool
}

// Images lists all images.
func (c *Client) Images(ctx context.Context) ([]Image, error) {
	r, err := c.images.ListImages(ctx, &runtime.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("CRI list of images: %w", err)
	}
	out := make([]Image, 0, len(r.GetImages()))
	for _, i := range r.GetImages() {
		out = append(out, Image{ID: i.GetId(), Tags: i.GetRepoTags(), Digests: i.GetRepoDigests(), Pinned: i.GetPinned()})
	}
	return out, nil
}

// Pull has the runtime fetch an image from the registry that its name says, or
// from the mirrors that the runtime knows, without credentials. limit bounds it:
// an image may be large and a line slow.
func (c *Client) Pull(ctx context.Context, name string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, longCall{}, limit), limit)
	defer cancel()
	if _, err := c.images.PullImage(ctx, &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: name}}); err != nil {
		return fmt.Errorf("CRI pull of image %s: %w", name, err)
	}
	return nil
}

// longCall is the key of a limit other than the client's.
type longCall struct{}

// ImageID is the ID behind a name, empty if the runtime does not have it.
func (c *Client) ImageID(ctx context.Context, name string) (string, error) {
	r, err := c.images.ImageStatus(ctx, &runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: name}})
	if err != nil {
		return "", fmt.Errorf("CRI status of image %s: %w", name, err)
	}
	return r.GetImage().GetId(), nil
}

// Remove takes an image away with all its names; one that is not there is none to
// remove. The runtime may keep the layers that containers use.
func (c *Client) Remove(ctx context.Context, name string) error {
	id, err := c.ImageID(ctx, name) // by a name, CRI-O takes off that name alone
	if err != nil {
		return err
	}
	if id == "" {
		id = name // what containerd cannot read it does not know by ID
	}
	if _, err := c.images.RemoveImage(ctx, &runtime.RemoveImageRequest{Image: &runtime.ImageSpec{Image: id}}); err != nil {
		return fmt.Errorf("CRI removal of image %s: %w", name, err)
	}
	return nil
}

// RemovePods takes all pods away with their containers.
func (c *Client) RemovePods(ctx context.Context) error {
	r, err := c.runtime.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("CRI list of pods: %w", err)
	}
	for _, p := range r.GetItems() {
		if _, err := c.runtime.StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: p.GetId()}); err != nil {
			return fmt.Errorf("CRI stop of pod %.12s: %w", p.GetId(), err)
		}
		if _, err := c.runtime.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: p.GetId()}); err != nil {
			return fmt.Errorf("CRI removal of pod %.12s: %w", p.GetId(), err)
		}
	}
	return nil
}

// ImageRoot is the directory in which the runtime unpacks images.
func (c *Client) ImageRoot(ctx context.Context) (string, error) {
	r, err := c.images.ImageFsInfo(ctx, &runtime.ImageFsInfoRequest{})
	if err != nil {
		return "", fmt.Errorf("CRI image file system: %w", err)
	}
	for _, f := range r.GetImageFilesystems() {
		if m := f.GetFsId().GetMountpoint(); m != "" {
			return m, nil
		}
	}
	return "", errors.New("CRI image file system: the runtime names no directory")
}

// Container is one container of a pod.
type Container struct {
	ID string
	// Sandbox is the ID of its pod's sandbox.
	Sandbox   string
	Namespace string
	Pod       string
	Name      string
	// ImageID is the ID of the image it was made from, or a name with its digest. Image is
	// the image that was asked for.
	ImageID string
	Image   string
	Running bool
	// Created is when it was made.
	Created time.Time
}

// Stop ends a container, by force after a time in seconds. The kubelet starts
// another in its place if its pod is to run.
func (c *Client) Stop(ctx context.Context, id string, seconds int64) error {
	if _, err := c.runtime.StopContainer(ctx, &runtime.StopContainerRequest{ContainerId: id, Timeout: seconds}); err != nil {
		return fmt.Errorf("CRI stop of container %.12s: %w", id, err)
	}
	return nil
}

// Containers lists the containers of all pods, those that ended among them.
func (c *Client) Containers(ctx context.Context) ([]Container, error) {
	r, err := c.runtime.ListContainers(ctx, &runtime.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("CRI list of containers: %w", err)
	}
	out := make([]Container, 0, len(r.GetContainers()))
	for _, k := range r.GetContainers() {
		out = append(out, Container{
			ID:        k.GetId(),
			Sandbox:   k.GetPodSandboxId(),
			Namespace: k.GetLabels()["io.kubernetes.pod.namespace"],
			Pod:       k.GetLabels()["io.kubernetes.pod.name"],
			Name:      k.GetLabels()["io.kubernetes.container.name"],
			ImageID:   k.GetImageRef(),
			Image:     k.GetImage().GetImage(),
			Running:   k.GetState() == runtime.ContainerState_CONTAINER_RUNNING,
			Created:   time.Unix(0, k.GetCreatedAt()),
		})
	}
	return out, nil
}

// sourceAnnotation of a pod sandbox comes from the kubelet, which overwrites the pod's own value.
// fromFile is its value for a pod whose manifest is a file of the node.
const (
	sourceAnnotation = "kubernetes.io/config.source"
	fromFile         = "file"
)

// StaticDigests lists the digests of the image that a container of a static pod was last created
// from, none if there is no such container. It ignores pods of the API server, also one of the
// same name, and the image that the tag names now.
func (c *Client) StaticDigests(ctx context.Context, namespace, pod, container string) ([]string, error) {
	r, err := c.runtime.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("CRI list of pods: %w", err)
	}
	static := map[string]bool{}
	for _, p := range r.GetItems() {
		static[p.GetId()] = p.GetAnnotations()[sourceAnnotation] == fromFile
	}
	all, err := c.Containers(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(k Container) bool {
		return !static[k.Sandbox] || k.Namespace != namespace || k.Pod != pod || k.Name != container
	})
	if len(all) == 0 {
		return nil, nil
	}
	last := slices.MaxFunc(all, func(a, b Container) int { return a.Created.Compare(b.Created) })
	images, err := c.Images(ctx)
	if err != nil {
		return nil, err
	}
	return digestsOf(images, last.ImageID), nil
}

// digestsOf lists the digests of the image with an ID; some runtimes give a name with a
// digest for it.
func digestsOf(all []Image, id string) (digests []string) {
	for _, i := range all {
		if id == "" || i.ID != id && !slices.Contains(i.Digests, id) {
			continue
		}
		for _, name := range i.Digests {
			if _, d, ok := strings.Cut(name, "@"); ok && !slices.Contains(digests, d) {
				digests = append(digests, d)
			}
		}
	}
	return digests
}

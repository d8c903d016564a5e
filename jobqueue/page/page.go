// Package page shows the queues and jobs of a jobqueue.Client as an HTML page and as JSON: what is
// due when, what is being worked on, what has failed and why. Jobs can be requeued, cancelled and
// rescheduled there, and queues paused. The command jobqueue uses the JSON, and so may other
// programs; README.md explains each field.
//
//	mux.Handle("/jobs/", page.Handler(client)) // on an address for the people who run the program
package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-timingwheel/timingwheel/jobqueue"
	"github.com/go-timingwheel/timingwheel/jobqueue/internal/manage"
)

// An Option changes what Handler makes.
type Option func(*handler)

// ReadOnly has the handler refuse every change, and the page have no buttons.
func ReadOnly() Option { return func(h *handler) { h.readOnly = true } }

// HideBodies has the page and the JSON leave out the bodies of jobs, which may be confidential.
// Keys and the texts of errors are still shown.
func HideBodies() Option { return func(h *handler) { h.hideBodies = true } }

// Backups lets requests have a backup of the store written into a folder of this machine, under a
// name that is not taken. Without it they cannot.
func Backups(folder string) Option { return func(h *handler) { h.backups = folder } }

// Hosts names hosts, as in the address that the browser shows, under which people reach a handler
// that listens on the loopback interface: through a proxy, say. Without it such a handler answers
// to localhost and loopback addresses only.
func Hosts(names ...string) Option {
	return func(h *handler) { h.hosts = append(h.hosts, names...) }
}

// Handler returns a handler for the page and the JSON of c. It ignores the path. It has no
// authentication: serve it to the people who run the program only.
func Handler(c *jobqueue.Client, opts ...Option) http.Handler {
	if c == nil {
		panic("page: Handler of a nil Client")
	}
	h := &handler{service: manage.Local{Client: c}, reader: newReader(manage.Local{Client: c})}
	for _, opt := range opts {
		opt(h)
	}
	return h
}

type handler struct {
	service    manage.Local
	reader     *reader
	readOnly   bool
	hideBodies bool
	backups    string
	hosts      []string
	crossSite  http.CrossOriginProtection
}

const (
	listed    = 50   // jobs of a list, unless the request says otherwise
	mostJobs  = 1000 // of a list
	mostBytes = 64 << 20
)

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// All addresses in the page consist of a query alone. So it works under any path and behind
	// http.StripPrefix.
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer") // the address holds names of queues
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	if !h.knowsHost(r) {
		fail(w, http.StatusForbidden, fmt.Sprintf("this page is not known as %s: see page.Hosts",
			manage.Quote(r.Host)))
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		h.read(w, r)
	case http.MethodPost:
		h.change(w, r)
	default:
		header.Set("Allow", "GET, HEAD, POST")
		fail(w, http.StatusMethodNotAllowed, "only GET, HEAD and POST")
	}
}

// knowsHost reports whether a request that arrived on the loopback interface names a loopback host.
// A site of another name may have that name point to the loopback interface, and its scripts are
// then of the same origin as this page, for the browser.
func (h *handler) knowsHost(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if tcp, ok := local.(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return true
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil &&
		ip.IsLoopback() ||
		slices.ContainsFunc(h.hosts, func(name string) bool {
			return strings.EqualFold(name,
				host)
		})
}

// read answers a request that changes nothing.
func (h *handler) read(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	switch q.Get("format") {
	case "", "html":
		h.servePage(w, r, q)
	case "json":
		v, err := h.lookUp(r.Context(), q)
		if err != nil {
			failWith(w, err)
			return
		}
		writeJSON(w, http.StatusOK, v)
	default:
		fail(w, http.StatusBadRequest, "format is html or json")
	}
}

// lookUp returns what a query for JSON is for.
func (h *handler) lookUp(ctx context.Context, q url.Values) (any, error) {
	queue := q.Get("queue")
	switch {
	case q.Get("show") == "due":
		return h.reader.due(ctx, queue)
	case q.Get("show") != "":
		return nil, fmt.Errorf("%w: show is due or nothing", jobqueue.ErrInvalid)
	case q.Has("id") || q.Has("key"):
		return h.job(ctx, q)
	case q.Has("state"):
		return h.jobs(ctx, q)
	}
	return h.overview(ctx, queue)
}

func (h *handler) overview(ctx context.Context, queue string) (*manage.Overview, error) {
	o, err := h.reader.overview(ctx)
	if err != nil {
		return nil, err
	}
	found := *o
	found.ReadOnly = h.readOnly
	if queue == "" {
		return &found, nil
	}
	found.Queues = slices.DeleteFunc(slices.Clone(o.Queues),
		func(q manage.Queue) bool { return q.Name != queue })
	found.Namespaces = slices.DeleteFunc(slices.Clone(o.Namespaces),
		func(n manage.Namespace) bool { return !strings.HasPrefix(queue, n.Name) })
	if len(found.Queues) == 0 {
		return nil, manage.NoQueue(queue)
	}
	return &found, nil
}

func (h *handler) jobs(ctx context.Context, q url.Values) (*manage.Jobs, error) {
	limit := listed
	if text := q.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > mostJobs {
			return nil, fmt.Errorf("%w: limit is from 1 to %d", jobqueue.ErrInvalid, mostJobs)
		}
	}
	jobs, err := h.service.Jobs(ctx, q.Get("queue"), q.Get("state"), q.Get("after"), limit)
	if err != nil {
		return nil, err
	}
	for i := range jobs.Jobs {
		h.hide(&jobs.Jobs[i])
	}
	return jobs, nil
}

func (h *handler) job(ctx context.Context, q url.Values) (*manage.Job, error) {
	ref := jobqueue.ByKey(q.Get("key"))
	if text := q.Get("id"); text != "" {
		id, err := jobqueue.ParseID(text)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", jobqueue.ErrInvalid, err)
		}
		ref = jobqueue.ByID(id)
	}
	job, err := h.service.Job(ctx, q.Get("queue"), ref)
	if err != nil {
		return nil, err
	}
	h.hide(job)
	return job, nil
}

// hide takes the body out of a job if bodies are not to be shown.
func (h *handler) hide(job *manage.Job) {
	if h.hideBodies {
		job.Body, job.BodyBase64, job.BodyCut, job.BodyHidden = "", nil, false, true
	}
}

// change answers a request to change something. No page of another site can have a browser send it:
// CrossOriginProtection refuses what the browser marks as coming from one, and forms, which may be
// sent across sites by older browsers without such marks, have other types than JSON.
func (h *handler) change(w http.ResponseWriter, r *http.Request) {
	if err := h.crossSite.Check(r); err != nil {
		fail(w, http.StatusForbidden, err.Error())
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil ||
		kind != "application/json" {
		fail(w, http.StatusUnsupportedMediaType, "the Content-Type has to be application/json")
		return
	}
	if h.readOnly {
		failWith(w, manage.ErrReadOnly)
		return
	}
	var a manage.Action
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostBytes))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			err = fmt.Errorf("%w: the limit of a request is %d bytes", jobqueue.ErrTooLarge,
				large.Limit)
		} else {
			err = fmt.Errorf("%w: %w", jobqueue.ErrInvalid, err)
		}
		failWith(w, err)
		return
	}
	if a.Do == manage.DoBackup {
		path, err := h.backupPath(a.Backup)
		if err != nil {
			failWith(w, err)
			return
		}
		a.Backup = path
	}
	result, err := h.service.Do(r.Context(), a)
	if err != nil {
		failWith(w, err)
		return
	}
	h.reader.forget()
	writeJSON(w, http.StatusOK, result)
}

// backupPath returns where a backup of a name goes, which comes from a request and must not lead
// out of the folder.
func (h *handler) backupPath(name string) (string, error) {
	if h.backups == "" {
		return "", fmt.Errorf("%w through this page: see page.Backups", jobqueue.ErrNoBackup)
	}
	isPlain := name != "" && name[0] != '.' && len(name) <= 100 &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) &&
				!strings.ContainsRune("-_.", r)
		})
	if !isPlain || !filepath.IsLocal(name) {
		return "", fmt.Errorf("%w: the name of a backup has letters, digits, -, _ and . only",
			jobqueue.ErrInvalid)
	}
	return filepath.Join(h.backups, name), nil
}

func fail(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, manage.Failure{Message: message})
}

func failWith(w http.ResponseWriter, err error) {
	f, status := manage.FailureOf(err)
	writeJSON(w, status, f)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic("page: " + err.Error()) // JSON can hold all of them
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(data, '\n'))
}

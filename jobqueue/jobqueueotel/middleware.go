// Package jobqueueotel traces the attempts at jobs with OpenTelemetry.
//
//	q.Use(jobqueueotel.Middleware())
//
// Each attempt is a span of kind consumer, from the call of the handler to its return.
package jobqueueotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

const scope = "github.com/go-timingwheel/timingwheel/jobqueue/jobqueueotel"

// The attributes of a span. Those that begin with "messaging." are of the semantic conventions of
// OpenTelemetry.
const (
	system    = attribute.Key("messaging.system")           // always "jobqueue"
	operation = attribute.Key("messaging.operation.type")   // always "process"
	queue     = attribute.Key("messaging.destination.name") // the name of the queue
	id        = attribute.Key("messaging.message.id")       // the text of the job's ID
	attempt   = attribute.Key("jobqueue.attempt")           // 1 for the first
	lateness  = attribute.Key("jobqueue.lateness")          // in seconds, as in Stats
	snoozed   = attribute.Key("jobqueue.snoozed")           // true if the handler put the job off
)

// An Option configures Middleware.
type Option func(*config)

type config struct {
	provider   trace.TracerProvider
	propagator propagation.TextMapPropagator
	carrier    func(*jobqueue.Job) propagation.TextMapCarrier
}

// WithTracerProvider has spans made by p instead of the global provider.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *config) { c.provider = p }
}

// WithCarrier has each span linked to the span in which its job was added. The queue does not carry
// trace context by itself: put it into the body of the job, with Inject of a propagator, and have
// carrier return it. The spans are linked, not parent and child, because a job may run years after
// it was added. The propagator is the global one, or p if that is not nil.
func WithCarrier(
	carrier func(*jobqueue.Job) propagation.TextMapCarrier, p propagation.TextMapPropagator,
) Option {
	return func(c *config) { c.carrier, c.propagator = carrier, p }
}

// Middleware returns what makes a span of each attempt. Have it outermost, so that the span
// includes the work of other middleware.
func Middleware(opts ...Option) jobqueue.Middleware {
	c := config{provider: otel.GetTracerProvider()}
	for _, opt := range opts {
		opt(&c)
	}
	if c.propagator == nil {
		c.propagator = otel.GetTextMapPropagator()
	}
	tracer := c.provider.Tracer(scope)
	return func(next jobqueue.Handler) jobqueue.Handler {
		return func(ctx context.Context, job *jobqueue.Job) (err error) {
			ctx, span := tracer.Start(ctx, "process "+job.Queue, c.start(job)...)
			returned := false
			// The span ends in a function of its own, because End that is deferred directly stops
			// and repeats a panic, which then shows another stack.
			defer func() {
				switch {
				case !returned:
					span.SetStatus(codes.Error, "the handler panicked")
				case jobqueue.IsSnooze(err):
					span.SetAttributes(snoozed.Bool(true))
				case err != nil:
					span.RecordError(err)
					span.SetStatus(codes.Error, err.Error())
				}
				span.End()
			}()
			err = next(ctx, job)
			returned = true
			return err
		}
	}
}

// start returns what is known of an attempt when it begins.
func (c *config) start(job *jobqueue.Job) []trace.SpanStartOption {
	since := job.Due
	if job.Added.After(since) {
		since = job.Added
	}
	opts := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(system.String("jobqueue"), operation.String("process"),
			queue.String(job.Queue), id.String(job.ID.String()), attempt.Int(job.Attempts),
			lateness.Float64(max(time.Since(since).Seconds(), 0))),
	}
	if c.carrier != nil {
		if carrier := c.carrier(job); carrier != nil {
			added := trace.SpanContextFromContext(
				c.propagator.Extract(context.Background(), carrier))
			if added.IsValid() {
				opts = append(opts, trace.WithLinks(trace.Link{SpanContext: added}))
			}
		}
	}
	return opts
}

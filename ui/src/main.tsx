// Entry: shell, routes, live updates.

import { Component, render, type ComponentChildren, type ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/app.css";
import { Empty, Loading } from "./components/basic";
import { QuestionDialog } from "./components/dialog";
import { KeysDialog, startKeys } from "./components/keys";
import { Palette } from "./components/palette";
import { Shell } from "./components/shell";
import { startApp } from "./lib/app";
import { startLive } from "./lib/live";
import { link, route, startRouter } from "./lib/router";
import { applyTheme } from "./lib/ui";
import { Overview } from "./pages/overview";
import { t } from "./strings";

type Page = ComponentType<{ id: string }>;

/** Pages beside the overview are loaded when they are opened. */
const PAGES: Record<string, [title: string, one: (() => Promise<Page>) | null, list: () => Promise<Page>]> = {
  overview: [t.nav.overview, null, () => Promise.resolve(Overview as Page)],
  queues: [t.nav.queues, () => import("./pages/queue").then((page) => page.QueuePage), () => import("./pages/queues").then((page) => page.Queues as Page)],
  jobs: [t.nav.jobs, () => import("./pages/job").then((page) => page.JobPage), () => import("./pages/jobs").then((page) => page.JobsPage as Page)],
  submit: [t.jobsPage.submit, null, () => import("./pages/submit").then((page) => page.Submit as Page)],
  "dead-letters": [t.nav.deadLetters, null, () => import("./pages/dead-letters").then((page) => page.DeadLetters as Page)],
  workflows: [t.nav.workflows, () => import("./pages/workflow").then((page) => page.WorkflowPage), () => import("./pages/workflows").then((page) => page.Workflows as Page)],
  schedules: [t.nav.schedules, () => import("./pages/schedule").then((page) => page.SchedulePage), () => import("./pages/schedules").then((page) => page.Schedules as Page)],
  workers: [t.nav.workers, null, () => import("./pages/workers").then((page) => page.Workers as Page)],
  types: [t.nav.types, () => import("./pages/type").then((page) => page.TypePage), () => import("./pages/types").then((page) => page.Types as Page)],
  operations: [t.nav.operations, null, () => import("./pages/operations").then((page) => page.Operations as Page)],
  webhooks: [t.nav.webhooks, () => import("./pages/webhook").then((page) => page.WebhookPage), () => import("./pages/webhooks").then((page) => page.Webhooks as Page)],
  tokens: [t.nav.tokens, null, () => import("./pages/tokens").then((page) => page.Tokens as Page)],
  system: [t.nav.system, null, () => import("./pages/system").then((page) => page.System as Page)],
};

const loaded = new Map<string, Page>([["overview", Overview as Page]]);

/** Keeps a failure of one page inside that page. */
class Guard extends Component<{ children: ComponentChildren; name: string }, { failed: string | null }> {
  override state = { failed: null };
  static getDerivedStateFromError(error: unknown) {
    return { failed: String(error) };
  }
  override componentDidCatch(error: unknown) {
    console.error(error);
    this.setState({ failed: String(error) });
  }
  override componentDidUpdate(before: { name: string }) {
    if (before.name !== this.props.name && this.state.failed) this.setState({ failed: null });
  }
  render() {
    if (!this.state.failed) return this.props.children;
    return <main class="page" id="content" tabIndex={-1}><section class="card"><Empty icon="alert" title={t.error.crashed} text={t.error.crashedText}><a class="btn" href={link(["overview"])}>{t.error.home}</a></Empty></section></main>;
  }
}

function CurrentPage() {
  const [name = "overview", id] = route.value.path;
  const [, setRound] = useState(0);
  const entry = PAGES[name];
  const key = id !== undefined && entry?.[1] ? `${name}/` : name;
  useEffect(() => {
    document.title = `${entry?.[0] ?? t.error.page} · ${t.product}`;
    if (!entry || loaded.has(key)) return;
    const load = key.endsWith("/") ? entry[1]! : entry[2];
    load().then((page) => (loaded.set(key, page), setRound((value) => value + 1)), () => location.reload());
  }, [key]);
  if (!entry) return <main class="page" id="content" tabIndex={-1}><section class="card"><Empty icon="info" title={t.error.page} text={t.error.pageText}><a class="btn" href={link(["overview"])}>{t.error.home}</a></Empty></section></main>;
  const Page = loaded.get(key);
  if (!Page) return <main class="page" id="content" tabIndex={-1}><Loading /></main>;
  return <Guard name={route.value.path.join("/")}><Page id={id ?? ""} key={`${key}${id ?? ""}`} /></Guard>;
}

function App() {
  const isCanvas = route.value.path[0] === "workflows" && route.value.path.length > 1;
  return (
    <>
      <Shell isCanvas={isCanvas}><CurrentPage /></Shell>
      <Palette /><KeysDialog /><QuestionDialog />
    </>
  );
}

applyTheme();
startRouter();
startKeys();
startApp();
void startLive();
render(<App />, document.getElementById("app")!);

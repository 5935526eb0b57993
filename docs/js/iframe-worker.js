// Pages that are opened as files may start no worker, and the search is one: it runs in a hidden
// frame instead. (The theme's own way is a script from another host.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      inner.document.open(); // so that no later loading of the empty page replaces it
      inner.document.write("<!doctype html><body></body>");
      inner.document.close();
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = new Promise((done) => {
        const script = inner.document.createElement("script");
        script.src = new URL(url, location.href).href;
        script.onload = done;
        inner.document.body.append(script);
      }).then(() => inner);
    }

    postMessage(data) {
      this.ready.then((inner) => inner.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}

// The address: which view is shown, and which panel is open over it. A colleague can be sent it, and Back closes the panel.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";

/** `of`: a broker, or the `name` of a bundle, topic or namespace. */
export interface Panel {
  of: "broker" | "name";
  name: string;
}

export interface Address {
  view: string;
  panel: Panel | null;
}

export function addressOf(hash: string): Address {
  const [view, asked] = hash.replace(/^#\/?/, "").split("?");
  const [[of, name] = ["", ""]] = [...new URLSearchParams(asked)];
  return { view, panel: (of === "broker" || of === "name") && name ? { of, name } : null };
}

function hashOf(address: Address): string {
  return `#/${address.view}${address.panel ? `?${new URLSearchParams({ [address.panel.of]: address.panel.name })}` : ""}`;
}

// Back is under way: a second Escape must not leave the page.
let leaving = false;
addEventListener("hashchange", () => (leaving = false));

export function openPanel(of: Panel["of"], name: string): void {
  const next = hashOf({ ...addressOf(location.hash), panel: { of, name } });
  if (next === location.hash) return;
  location.hash = next;
  history.replaceState({ opened: true }, "");
}

export function closePanel(): void {
  if (leaving) return;
  leaving = true;
  if (history.state?.opened) return history.back();
  // Whoever came by this address has nothing to go back to.
  history.replaceState(null, "", hashOf({ ...addressOf(location.hash), panel: null }));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function useAddress(): Address {
  const [address, setAddress] = useState(addressOf(location.hash));
  useEffect(() => {
    const follow = () => setAddress(addressOf(location.hash));
    addEventListener("hashchange", follow);
    follow(); // it may have changed since the first rendering
    return () => removeEventListener("hashchange", follow);
  }, []);
  return address;
}

/** A link that can be copied, and opens a panel over the view that is shown. */
export function PanelLink(props: { of: Panel["of"]; name: string; children?: ComponentChildren }) {
  const { of, name } = props;
  const open = (event: Event) => {
    event.preventDefault();
    openPanel(of, name);
  };
  return (
    <a href={hashOf({ ...addressOf(location.hash), panel: { of, name } })} onClick={open}>
      {props.children ?? name}
    </a>
  );
}

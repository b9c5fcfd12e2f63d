"use strict";
// The first screen: one sentence of verdict, the device, who held it, and what to do. Its words are the commands' own.

function linesOf(text) {
  return (text || "").split("\n").map((line) => line.trim()).filter(Boolean);
}

// The first part of a sentence of a command, to go on with in another one.
function clause(text) {
  const [first] = text.split("; ");
  return first.charAt(0).toLowerCase() + first.slice(1);
}

function showAnswer(app) {
  const {run} = app, limit = run.advice.said?.goal[0].limit === "process" ? run.advice.said.goal[0].limit_bytes : null;
  document.getElementById("verdict").replaceChildren(...verdict(run));
  showCapacity(run, document.getElementById("capacity"), limit);
  showWho(run, document.getElementById("who"), app.modules.modules, (category) => app.pickCategory(category));
  showTodo(run, document.getElementById("todo"));
}

function verdict(run) {
  const [at] = run.answer_at, death = linesOf(run.answer.death), grows = linesOf(run.answer.grows)[0];
  const ending = [grows && `${clause(grows)}${whoGrows(run, at)}`, next(run)].filter(Boolean).join("; ");
  if (death.length) {
    const why = death.find((line) => line.startsWith("Why: ")), missing = run.advice.said?.goal[0].missing_bytes;
    const reason = [why ? clause(why.slice(5)) : at && `the peak was ${formatBytes(at.allocated)} ${peakWords(run, at)}`,
                    why && missing ? `at least ${formatBytes(missing)} are missing` : null, why ? next(run) : null].filter(Boolean).join("; ");
    return [element("span", {class: "dead"}, `${death[0]}. `), reason ? `${reason.charAt(0).toUpperCase()}${reason.slice(1)}.` : ""];
  }
  if (!at) return [linesOf(run.answer.driver)[0] || "What was allocated is not known."];
  return [element("b", {title: formatExact(at.allocated), "data-bytes": at.allocated}, `Peak ${formatBytes(at.allocated)}`), ` ${peakWords(run, at)}`, ending ? `; ${ending}.` : "."];
}

// "between steps 2 and 3, 51.0% activation"
function peakWords(run, at) {
  if (!at) return "";
  const life = run.byRank.life.get(at.rank)?.[0], [largest] = (run.byRank.life_category.get(at.rank) || []).slice().sort((a, b) => b.bytes - a.bytes);
  if (!life) return "";
  const where = life.step === null ? life.where : `in step ${life.step}, ${life.where}`;
  const who = at.ranks < 2 ? "" : at.equal === at.ranks ? ` on all ${at.ranks.toLocaleString("en-US")} ranks` : ` on rank ${at.rank}`;
  return `${where}${who}${largest ? `, ${formatShare(largest.bytes, life.allocated)} ${largest.category}` : ""}`;
}

// Which rank that is said of, where it is not the one of the peak.
function whoGrows(run, at) {
  const [, rank] = /^Rank (\d+)\b/.exec(linesOf(run.answer.grows).find((line) => line.startsWith("Rank ")) || "") || [];
  return rank !== undefined && at && Number(rank) !== at.rank ? ` on rank ${rank}` : "";
}

// The owner that grows most, where survivors does not call that small; else null.
function growing(run) {
  const [owner] = run.answer.growing.growth || [];
  return owner && !/^Grows [^;]*: small \(/.test(run.answer.grows) ? owner : null;
}

// What to do next, in a few words.
function next(run) {
  const {advice} = run, {said} = advice, grown = growing(run);
  const whose = /(?:most of it|the largest part): (.*) \([^()]*\)$/.exec(linesOf(run.answer.grows)[0] || "");
  if (grown && !said?.goal[0].missing_bytes)
    return `next: see what keeps ${whose ? whose[1] : grown.category}${grown.code_line ? `, made at ${grown.code_line}` : ""}`;
  if (!said) return null;
  const [first] = ableAdvice(said);
  if (said.goal[0].fits_already) return said.goal[0].retries ? null : "next: nothing has to change, it fits";
  if (!said.goal[0].missing_bytes) return null;
  if (!first) return "next: nothing that is known of would help";
  return ["no", "hardly"].includes(first.fits) ? "next: no change that is known of is enough by itself" : `next: ${first.what} (fits: ${first.fits_words}, ${first.standing})`;
}

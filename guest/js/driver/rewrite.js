// What a cell's code needs before it is evaluated as a global script: its
// declarations must be there in the next cell, may be made again there, and
// imports must work. Positions stay as they are, line by line.
import { parse } from "acorn";
import { edit, edited, mistakeOf, parsed } from "./edits.js";

const interesting = /\b(?:const|let|class|import|export)\b/;

// rewrite gives the code to evaluate. Code that cannot be parsed stays as it is: the
// engine then says what is wrong, or the mistake does where the engine cannot know it.
export function rewrite(code, label) {
  try {
    return { code: interesting.test(code) ? rewritten(code) : code };
  } catch (said) {
    return { code, mistake: mistakeOf(said, code, label) };
  }
}

function rewritten(code) {
  const edits = [];
  for (const node of parsed(parse, code).body) edit(node, code, edits);
  return edited(code, edits);
}
